"""The fixture `cluster`."""

pytest_plugins = ["dartsim.testing"]
