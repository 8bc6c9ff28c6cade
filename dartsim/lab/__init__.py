"""The laboratory: many simulated runs of one system, to compare schedulers, tune settings and plan machines."""
