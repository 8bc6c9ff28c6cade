"""Trainer: takes batches, updates the weights, publishes them, and survives failures."""

from dartsim.trainer.loop import Trainer

__all__ = ["Trainer"]
