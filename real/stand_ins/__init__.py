"""Stand-ins for engines, desktops and ranks that are not up; they speak the same protocols and answer immediately."""
