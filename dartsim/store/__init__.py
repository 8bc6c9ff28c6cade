"""Stores: the states of trajectories in memory or a database, screenshots and checkpoints on disk."""
