"""Stand-ins for engines, desktops and ranks that are not up yet; they speak the same protocols, and answer at once."""
