"""Errors in the code of plug-ins, reported with the user's line that raised them."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import format_exception_only, walk_tb

from dartsim.core.errors import DartsimError, PlugInFailed

PLUGIN_MODULES: set[str] = set()
"""The modules of plug-ins: those that registered components, and those named by the user."""


@contextmanager
def plugin_errors(prefix: str = "") -> Iterator[None]:
    """Raise ``PlugInFailed`` for an error in a plug-in's code, also if nested in exception groups.

    Args:
        prefix: Text before the message, such as a run's name.
    """
    try:
        yield
    except Exception as error:
        leaf = plugin_error(error)
        if leaf is None:
            raise
        raise PlugInFailed(f"{prefix}{describe(leaf)}") from leaf


def plugin_error(error: BaseException) -> BaseException | None:
    """Return the first error, in nested groups too, that a plug-in's code raised; None if none did.

    A ``DartsimError`` that a plug-in raises on purpose is not one: its message explains itself.
    """
    return next((leaf for leaf in leaves(error) if not isinstance(leaf, DartsimError) and _place(leaf)), None)


def describe(error: BaseException) -> str:
    """Return an error's kind and message, with the plug-in's line that raised it, if one did."""
    said = "".join(format_exception_only(error)).strip().removeprefix(f"{type(error).__module__}.")
    place = _place(error)
    return said if place is None else f"{said}\n{place}"


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors of nested groups."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from leaves(member)
    else:
        yield error


def _place(error: BaseException) -> str | None:
    """Return the innermost line of a plug-in that we called, as in a traceback; None if there is none."""
    inside, place = False, None
    for frame, number in walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__"))
        inside = inside or module.startswith("dartsim.")
        if inside and module in PLUGIN_MODULES:
            code = frame.f_code
            place = f'  File "{code.co_filename}", line {number}, in {code.co_name}'
            if line := linecache.getline(code.co_filename, number).strip():
                place += f"\n    {line}"
    return place
