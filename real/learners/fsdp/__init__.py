"""``FsdpLearner``: ``TorchLearner``'s updates by several processes, each with a part of the weights (torch FSDP2)."""
