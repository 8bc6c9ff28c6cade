"""Named configurations, one TOML file each; read by ``dartsim.config``."""
