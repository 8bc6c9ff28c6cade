"""``FsdpLearner``: what ``TorchLearner`` does, by several processes with a part of the weights each (torch FSDP2)."""
