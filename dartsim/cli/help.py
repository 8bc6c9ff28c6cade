"""How ``--help`` reads: flags as they are typed, paragraphs that fill the terminal's width."""

from __future__ import annotations

import inspect
from typing import Any

from typer.core import TyperGroup


class Group(TyperGroup):
    """Commands under one name."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command whose help can be read at any width."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            command.help = filled(command.help)
            _untyped([*command.params, command.get_help_option(ctx)])
        return command

    def get_params(self, ctx: Any) -> Any:
        """Return the group's own options, and ``--help``."""
        return _untyped(super().get_params(ctx))


def filled(text: str | None) -> str | None:
    """Return a docstring with each paragraph on one line: where the source breaks its lines is no reader's business."""
    if text is None:
        return None
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in inspect.cleandoc(text).split("\n\n"))


def _untyped(options: list[Any]) -> list[Any]:
    """Show flags as what is typed, without a type behind them."""
    for option in options:
        if getattr(option, "is_bool_flag", False) and option.metavar is None:
            option.metavar = ""
    return options
