"""What becomes of every trajectory: states in memory or in a database, screenshots and checkpoints on disk."""
