"""Named workloads, one TOML file each: cluster, tasks and latencies, laid over a preset by ``dartsim.config``."""
