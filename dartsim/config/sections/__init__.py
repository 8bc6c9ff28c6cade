"""The sections of a configuration, one topic per file; ``dartsim.config.schema`` puts them together."""
