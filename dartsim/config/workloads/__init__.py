"""Named workloads, one TOML file each: cluster, tasks and latencies, merged with a preset by ``dartsim.config``."""
