"""``python -m dartsim``: the command line."""

from dartsim.cli.app import main

if __name__ == "__main__":
    main()
