"""Configuration: schema, rules, reading."""

from dartsim.config.load import from_tree, load, to_toml
from dartsim.config.packaged import preset, presets
from dartsim.config.schema import Config
from dartsim.config.settings import merge, valid_keys

__all__ = ["Config", "from_tree", "load", "merge", "preset", "presets", "to_toml", "valid_keys"]
