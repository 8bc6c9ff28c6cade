"""``dartsim``: the command and its sub-commands.

Exit codes: 0 done, 1 the run failed, 2 the request was wrong (configuration, arguments, task files), 3 a gate is
undecided, 10 to 20 an alarm ended the run (``run.fail_on_alarm``; ``docs/reference.md``) or it trained nothing (18),
130 interrupted and 143 terminated (`run` writes its results so far).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from traceback import format_exception
from typing import Annotated

import typer

from dartsim.cli import (
    check,
    cluster,
    compare,
    config_command,
    desktop,
    eval,
    fuzz,
    predict,
    run,
    show,
    task_lists,
    tune,
)
from dartsim.cli.command_group import RootCommandGroup
from dartsim.cli.console import (
    drop_output,
    errors,
    flush_output,
    hide_secrets_in_logs,
    is_output_error,
    output_failed,
    print_error,
    state,
)
from dartsim.cli.signals import INTERRUPTED, exit_code, sigterm_as_ctrl_c
from dartsim.core.errors import ConfigError, DartsimError, PlugInFailed, TaskFileError

COMMANDS: dict[str, dict[str, Callable[..., None] | typer.Typer]] = {
    "Run": {"run": run.run, "eval": eval.evaluate, "show": show.show},
    "Tune a scheduler": {"compare": compare.compare, "tune": tune.tune, "plan": tune.plan, "predict": predict.predict},
    "Test at scale": {"fuzz": fuzz.fuzz},
    "Set up": {
        "check": check.check,
        "cluster": cluster.cluster_app,
        "config": config_command.config,
        "desktop": desktop.desktop_app,
    },
}
"""The commands by task, in the order of ``dartsim --help``: functions, whose docstrings are the help, and groups."""

desktop.desktop_app.command("tasks")(task_lists.tasks)
desktop.desktop_app.command("evaluator")(task_lists.evaluator)
desktop.desktop_app.command("fetch")(task_lists.fetch)

app = typer.Typer(
    name="dartsim",
    cls=RootCommandGroup,
    help="Decoupled, asynchronous reinforcement learning of GUI agents: try it on a simulated cluster.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: [bold]dartsim compare coupled dart-measured[/bold], or [bold]dartsim run[/bold]\n\n"
    "Exit codes: 0 done, 1 failed, 2 wrong request, 3 undecided, 10 to 20 an alarm, 130 interrupted, 143 terminated",
)
for panel, commands in COMMANDS.items():
    for name, command in commands.items():
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=panel)
        else:
            app.command(name, rich_help_panel=panel)(command)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the versions and exit.")] = False,
) -> None:
    """Decoupled, asynchronous reinforcement learning of GUI agents: try it on a simulated cluster."""
    if version:
        from importlib.metadata import version as installed
        from platform import python_version

        from dartsim.core.compiled import form

        libraries = ", ".join(f"{name} {installed(name)}" for name in ("numpy", "simpy"))
        typer.echo(f"dartsim {installed('dartsim')}, {form()} (Python {python_version()}, {libraries})")
        raise typer.Exit


def main() -> None:
    """Run the command line and turn errors into messages and exit codes."""
    hide_secrets_in_logs()
    with sigterm_as_ctrl_c():
        code = flush_output(_run())
    sys.exit(code)


def _run() -> int:
    """Run the command line and return its exit code."""
    state.debug = state.working = False
    try:
        app()
    except SystemExit as ended:
        return exit_code(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
    except (ConfigError, TaskFileError) as error:
        print_error("error", str(error))
        return 2
    except DartsimError as error:
        print_error(type(error).__name__, str(error), soft_wrap=True)
        return _failed(error, isinstance(error, PlugInFailed))
    except KeyboardInterrupt:
        errors.print("interrupted: nothing was written")
        return exit_code(INTERRUPTED)
    except Exception as error:
        if isinstance(error, OSError) and is_output_error(error):
            drop_output()
            return output_failed(error)
        return _unexpected(error)
    return 0


INPUT_ERRORS = (ArithmeticError, MemoryError, OSError, RecursionError, ValueError)
"""Errors that Python raises for input that is too large, too deeply nested or not a number."""


def _unexpected(error: Exception) -> int:
    """Print an error that our code did not raise on purpose, and return the exit code.

    For a plug-in's error, print its line; for input that Python refuses before any work began, one sentence; otherwise,
    for a bug of ours, the traceback of the first error.
    """
    from dartsim.core.plugin_errors import describe, leaves, plugin_error
    from dartsim.core.secrets import redact

    if (leaf := plugin_error(error)) is not None:
        print_error("PlugInFailed", describe(leaf), soft_wrap=True)
        return _failed(error, True)
    first, *others = leaves(error)
    if not state.working and isinstance(first, INPUT_ERRORS):
        print_error("error", f"the request cannot be read: {type(first).__name__}: {first}")
        _failed(error, True)
        return 2
    if others and not state.debug:
        sys.stderr.write(redact("".join(format_exception(first, chain=False))))
        return _failed(error, True)
    sys.stderr.write(redact("".join(format_exception(error))))
    return 1


def _failed(error: Exception, more: bool) -> int:
    """Print the whole traceback with ``--debug``, or mention that option; return the exit code."""
    from dartsim.core.secrets import redact

    if state.debug:
        sys.stderr.write(redact("".join(format_exception(error))))
    elif more:
        errors.print("(--debug shows the whole traceback)")
    return 1
