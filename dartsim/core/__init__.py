"""The types, ports and errors that all parts share, named random streams, and the conformance check of each port."""
