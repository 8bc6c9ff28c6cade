"""Studies of the system: each runs as ``python -m experiments.NAME [--quick] [--seeds N] [--json FILE]``."""
