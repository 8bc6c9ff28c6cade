"""Groups of commands: readable ``--help``, and messages for interrupted commands."""

from __future__ import annotations

import inspect
import select
import sys
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dartsim.cli.console import drop_output, errors, set_debug
from dartsim.cli.signals import INTERRUPTED
from dartsim.core.registry import use_plugin, used_plugins

CONFIGURED = {
    *("run", "resume", "compare", "tune", "plan", "explain", "collect", "eval", "measure", "rehearse", "fuzz"),
    *("report", "rescore", "show", "schema"),
}
"""Commands that read a configuration, and so may need plug-ins."""


class CommandGroup(TyperGroup):
    """Group whose help shows flags without a type and fills the terminal's width; it adds ``--plugin`` to commands."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command whose help can be read at any width."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            if cmd_name in CONFIGURED and not any(option.name == "plugin" for option in command.params):
                command.params += _plugin_options()
            command.help = unwrap_paragraphs(command.help)
            _shorten_types([*command.params, command.get_help_option(ctx)])
        return command

    def get_params(self, ctx: Any) -> Any:
        return _shorten_types(super().get_params(ctx))


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
            error.message = error.message.removeprefix("Value error, ")  # pydantic's words, not the user's
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


def unwrap_paragraphs(text: str | None) -> str | None:
    """Return a docstring with each paragraph on one line, so that it wraps at any width."""
    if text is None:
        return None
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in inspect.cleandoc(text).split("\n\n"))


def _use(modules: list[str] | None) -> None:
    for module in modules or ():
        use_plugin(module)


def plugin_words() -> list[str]:
    """Return the options that give the plug-ins in use to another command."""
    return [word for module in used_plugins() for word in ("--plugin", module)]


Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="MODULE",
        is_eager=True,  # before a configuration is read
        expose_value=False,
        callback=_use,
        help="Module that registers components of your own; repeatable.",
    ),
]


Debug = Annotated[
    bool,
    typer.Option(
        "--debug", is_eager=True, expose_value=False, callback=set_debug, help="Show the whole traceback of an error."
    ),
]


@cache
def _plugin_options() -> list[Any]:
    """Return the options as typer makes them of a command's parameters."""
    app = typer.Typer(add_completion=False)
    app.command()(_with_plugins)
    return typer.main.get_command(app).params[:2]


def _with_plugins(plugin: Plugins = None, debug: Debug = False) -> None:
    """Have the options, for ``_plugin_options``."""


def _shorten_types(options: list[Any]) -> list[Any]:
    """Show flags without a type and numbers as N, so that the help has room for words."""
    for option in options:
        if option.metavar is not None:
            continue
        if getattr(option, "is_bool_flag", False):
            option.metavar = ""
        elif getattr(getattr(option, "type_descriptor", None), "annotation", None) in (int, float, list[int]):
            option.metavar = "N"  # by what typer 0.29 keeps; other versions show the type's name
    return options
