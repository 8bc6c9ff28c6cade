"""The page of runs: named JSON documents of a run directory, a server that serves them, and a file that holds them."""
