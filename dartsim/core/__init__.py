"""The types, ports, errors and named random streams that all parts share."""
