"""The sections of a configuration, an idea a file; ``dartsim.config.schema`` puts them together."""
