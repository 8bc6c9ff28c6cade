"""Groups of commands: readable ``--help``, and messages for interrupted commands."""

from __future__ import annotations

import re
import select
import sys
from functools import cache
from textwrap import dedent
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dartsim.cli.console import drop_output, errors, state
from dartsim.cli.signals import INTERRUPTED
from dartsim.core.plugins import use_plugin, used_plugins


class CommandGroup(TyperGroup):
    """Group of commands, each a typed function whose docstring is its help.

    The docstring's first sentence is its line in the list of commands; the lines below ``Examples:`` keep their breaks.
    Every command also gets ``--plugin`` and ``--debug``.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for command in self.commands.values():
            if isinstance(command, TyperGroup):
                continue
            command.params += _common_options()
            for option in command.params:
                option.metavar = "" if getattr(option, "is_bool_flag", False) else option.metavar
            text, _, examples = (command.help or "").partition("\n\nExamples:\n")
            command.short_help = re.split(r"[.:;](?:\s|$)", text)[0]
            command.help = "\n\n".join(" ".join(lines.split("\n")) for lines in text.split("\n\n"))
            command.epilog = "Examples:\n\n" + re.sub(r"\n(?! )", "\n\n", dedent(examples).rstrip())


def command_group(name: str, about: str) -> typer.Typer:
    """Return a group without commands yet, which shows its help if none of them is named."""
    return typer.Typer(name=name, cls=CommandGroup, help=about, no_args_is_help=True)


class RootCommandGroup(CommandGroup):
    """The ``dartsim`` command: reports interruptions and ignores closed pipes."""

    def invoke(self, context: Any) -> Any:
        """Run a command.

        Raises:
            typer.Exit: If it was interrupted.
        """
        try:
            return super().invoke(context)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")  # added by pydantic
            raise
        except KeyboardInterrupt:
            errors.print("interrupted: nothing was written")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            if not _output_closed():
                raise
            drop_output()
            return None


def _output_closed() -> bool:
    """Whether the reader has closed standard output."""
    polled = select.poll()
    try:
        polled.register(sys.stdout.fileno(), select.POLLOUT)
    except (OSError, ValueError):
        return False
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in polled.poll(0))


def _set_debug(on: bool) -> None:
    state.debug = on


def _use(modules: list[str] | None) -> None:
    for module in modules or ():
        use_plugin(module)


def plugin_words() -> list[str]:
    """Return the command-line arguments that load the same plug-ins in another command."""
    return [word for module in used_plugins() for word in ("--plugin", module)]


Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="MODULE",
        is_eager=True,  # before a configuration is read
        expose_value=False,
        callback=_use,
        help="Python module that registers your own components; repeatable.",
    ),
]


Debug = Annotated[
    bool,
    typer.Option(
        "--debug", is_eager=True, expose_value=False, callback=_set_debug, help="Show the whole traceback of an error."
    ),
]


@cache
def _common_options() -> list[Any]:
    """Return the options of every command, which typer creates from a function's parameters."""
    app = typer.Typer(add_completion=False)
    app.command()(_with_common_options)
    return typer.main.get_command(app).params[:2]


def _with_common_options(plugin: Plugins = None, debug: Debug = False) -> None:
    """Declare the options for ``_common_options``."""
