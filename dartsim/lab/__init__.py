"""The laboratory: many simulated runs of one system, to tune it, to plan its machines, to explain its idle time."""
