"""The command line: ``dartsim`` and its sub-commands."""
