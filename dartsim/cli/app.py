"""``dartsim``: the command and its sub-commands.

Exit codes: 0 done, 1 the run failed, 2 the request was wrong (configuration, arguments, task files),
10 to 19 an alarm ended the run (``run.fail_on_alarm``; ``docs/reference.md``), 130 interrupted and 143 terminated (of
`run`, what ran so far is written).
"""

from __future__ import annotations

import sys
from traceback import format_exc
from typing import Annotated

import typer

from dartsim.cli import (
    collect,
    compare,
    config_commands,
    desktop,
    desktop_tasks,
    doctor,
    eval,
    evaluator,
    explain,
    finished_run,
    fuzz,
    measure,
    plan,
    rehearse,
    run,
    status,
    task_files,
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
    printable,
)
from dartsim.cli.signals import INTERRUPTED, exit_code, sigterm_as_ctrl_c
from dartsim.core.errors import ConfigError, DartsimError, TaskFileError

app = typer.Typer(
    name="dartsim",
    cls=RootCommandGroup,
    help="Decoupled, asynchronous reinforcement learning of GUI agents: try it on a simulated cluster.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: [bold]dartsim compare coupled dart-measured[/bold], or [bold]dartsim run[/bold]",
)
app.command("run", epilog=run.EXAMPLES)(run.run)
app.command("resume", epilog=run.RESUME_EXAMPLES)(run.resume)
app.command("compare", epilog=compare.EXAMPLES)(compare.compare)
app.command("tune", epilog=tune.EXAMPLES)(tune.tune)
app.command("plan", epilog=plan.EXAMPLES)(plan.plan)
app.command("rehearse", epilog=rehearse.EXAMPLES)(rehearse.rehearse)
app.command("explain", epilog=explain.EXAMPLES)(explain.explain)
app.command("collect", epilog=collect.EXAMPLES)(collect.collect)
app.command("eval", epilog=eval.EXAMPLES)(eval.evaluate)
app.command("watch", epilog=finished_run.WATCH_EXAMPLES)(finished_run.watch)
app.command("measure", epilog=measure.EXAMPLES)(measure.measure)
app.command("doctor", epilog=doctor.EXAMPLES)(doctor.doctor)
app.command("report", epilog=finished_run.REPORT_EXAMPLES)(finished_run.report)
app.command("rescore", epilog=finished_run.RESCORE_EXAMPLES)(finished_run.rescore)
app.command("status", epilog=status.EXAMPLES)(status.status)
app.command("presets", epilog=config_commands.PRESETS_EXAMPLES)(config_commands.presets)
app.command("profiles", epilog=config_commands.PROFILES_EXAMPLES)(config_commands.profiles)
app.command("faults", epilog=config_commands.FAULTS_EXAMPLES)(config_commands.faults)
app.command("fuzz", epilog=fuzz.EXAMPLES)(fuzz.fuzz)
app.command("replay", epilog=fuzz.REPLAY_EXAMPLES)(fuzz.replay)
app.add_typer(config_commands.config_app, name="config")
desktop.desktop_app.command("tasks", epilog=desktop_tasks.EXAMPLES)(desktop_tasks.tasks)
app.add_typer(desktop.desktop_app, name="desktop")
app.add_typer(evaluator.evaluator_app, name="evaluator")
app.add_typer(task_files.tasks_app, name="tasks")


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Decoupled, asynchronous reinforcement learning of GUI agents: try it on a simulated cluster."""
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"dartsim {installed('dartsim')}")
        raise typer.Exit


def main() -> None:
    """Run the command line and turn errors into messages and exit codes."""
    hide_secrets_in_logs()
    with sigterm_as_ctrl_c():
        code = flush_output(_run())
    sys.exit(code)


def _run() -> int:
    """Run the command line and return its exit code."""
    try:
        app()
    except SystemExit as ended:
        return exit_code(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
    except (ConfigError, TaskFileError) as error:
        errors.print(f"[bold red]error:[/bold red] {_plain(error)}", highlight=False)
        return 2
    except DartsimError as error:
        errors.print(f"[bold red]{type(error).__name__}:[/bold red] {_plain(error)}", highlight=False)
        return 1
    except KeyboardInterrupt:
        errors.print("interrupted: nothing was written")
        return exit_code(INTERRUPTED)
    except Exception as error:
        if isinstance(error, OSError) and is_output_error(error):
            drop_output()
            return output_failed(error)
        from dartsim.config.secrets import hidden

        # A bug of ours or of a library: print the traceback, without secrets.
        sys.stderr.write(hidden(format_exc()))
        return 1
    return 0


def _plain(error: Exception) -> str:
    """Return an error's text without secrets and with markup escaped."""
    from dartsim.config.secrets import hidden

    return printable(hidden(str(error))).replace("[", r"\[")
