"""Trainer: takes batches, updates the weights, publishes them, and survives failures."""

from dartsim.trainer.loop import RetryRule, Trainer

__all__ = ["RetryRule", "Trainer"]
