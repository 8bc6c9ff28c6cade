"""Measurements: what a run records, the states of its components, figures, alarms, pages and Perfetto trace."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)  # __init__.pyi has the names
