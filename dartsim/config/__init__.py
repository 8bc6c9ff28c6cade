"""Configuration: schema, rules, reading."""

from dartsim.config.load import from_tree, load, merge, preset, presets, to_toml, valid_keys
from dartsim.config.schema import Config

__all__ = ["Config", "from_tree", "load", "merge", "preset", "presets", "to_toml", "valid_keys"]
