"""Tasks for our desktop image, in OSWorld's schema.

apps/        task files of real applications, in OSWorld's layout; suite.py reads them
oracles.py   what solves each of them; playing.py tries it out on real desktops
panel.py     generated tasks of one click, for a small model
"""
