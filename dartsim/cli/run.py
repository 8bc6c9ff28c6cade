"""``dartsim run``: start one run, simulated or real, or resume it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dartsim.cli.console import FIGURES_NOTE, errors, figure_table, result
from dartsim.cli.options import (
    Backend,
    FaultsOption,
    GymEnv,
    Hours,
    Json,
    OnOption,
    Out,
    Overrides,
    UntilSteady,
    Workers,
    backend_overrides,
    env_overrides,
    given,
    load_config,
    new_folder,
    settings,
)
from dartsim.cli.signals import report_interrupt
from dartsim.core.errors import ConfigError
from dartsim.observe.alarm import KINDS, alarm_text

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from dartsim.config import Config
    from dartsim.observe import Instrument
    from dartsim.observe.rundir import RunDir
    from dartsim.run.results import RunResult
    from dartsim.run.resume_point import ResumePoint


def run(
    context: typer.Context,
    scheduler: Annotated[
        str | None,
        typer.Argument(
            metavar="CONFIG|RUN",
            help="A preset (`dartsim config`), a TOML file (`dartsim config --list settings`), or a run to resume.",
        ),
    ] = None,
    on: OnOption = None,
    overrides: Overrides = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all random draws.")] = None,
    hours: Hours = None,
    until_steady: UntilSteady = None,
    backend: Backend = None,
    workers: Workers = None,
    env: GymEnv = None,
    faults: FaultsOption = None,
    twin: Annotated[
        bool,
        typer.Option("--twin", help="Run the virtual twin of a real configuration: its rules on a modeled cluster."),
    ] = False,
    out_folder: Out = None,
    show: Annotated[
        bool, typer.Option("--show", help="Serve the run's page, during the run and until Ctrl-C.")
    ] = False,
    json_file: Json = None,
) -> None:
    r"""Run one system, simulated or real, or resume a run.

    A run writes a folder with its figures, model, database and recordings, which `dartsim show` shows. Without a
    configuration, a tiny vision-language model learns tasks of several turns (preset `errands`; with --backend desktop,
    clicks on real desktops, preset `desktop`). This needs the extra `train`; presets with a surrogate policy need none.

    Given a run's folder, it resumes that run from its last transaction, after a crash, a kill or Ctrl-C; --hours or
    --set run.updates=N extends a finished run. Interrupted attempts restart, no trajectory is trained twice, and no
    stored one is lost.

    Ctrl-C ends the run and writes its figures.

    Examples:
        dartsim run
        dartsim run dart --hours 8 --show
        dartsim run runs/dart-seed0 --hours 48
        dartsim run areal-eta4 --on cluster.toml --hours 8
        dartsim run dart-measured --hours 48 --until-steady 2%
        dartsim config dart > my.toml
        dartsim run my.toml --set rollout.num_envs=80 \
          --set cluster.engine.reload_seconds=20 --seed 3
        dartsim run dart --faults osworld
        dartsim run --backend mock --hours 0.1
        dartsim run --backend gym --env my_package.desktop:MyDesktop
        dartsim run osworld-8gpu --twin --hours 8
        dartsim run coupled --json - | jq .env_utilization
    """
    from dartsim.lab.bounds import bounds
    from dartsim.observe import Listener
    from dartsim.run.execute import execute
    from dartsim.run.resume import is_run
    from dartsim.run.verdict import too_few_attempts

    if scheduler is not None and is_run(Path(scheduler)):
        _refuse_options(context, scheduler)
        _resume(Path(scheduler), settings(overrides, hours, None), json_file)
        return
    changes = [*backend_overrides(backend, workers), *env_overrides(env)]
    default = "desktop" if backend == "desktop" else "errands"
    if twin:
        from dartsim.config import load
        from dartsim.lab.virtual import modeled_twin

        real = load_config(scheduler, default=default, overrides=[*changes, *settings(overrides, hours, seed, faults)])
        # A cluster and an end when steady are for modeled runs only; what was set wins over the cluster once more.
        again = settings(overrides if on else None, hours, seed, faults, until_steady=until_steady)
        resolved = load(modeled_twin(real), on=on, overrides=again)
    else:
        options = settings(overrides, hours, seed, faults, until_steady=until_steady)
        resolved = load_config(scheduler, default=default, on=on, overrides=[*changes, *options])
    if not resolved.backend.virtual:
        from dartsim.lab.estimate import estimate
        from dartsim.run.prepare import refuse_missing_packages

        refuse_missing_packages(resolved)  # before torch is imported
        estimate(resolved)  # fails if processes do not fit on their GPUs
    path = out_folder or new_folder(f"{resolved.name}-seed{resolved.run.seed}")
    if few := too_few_attempts(resolved):
        errors.say(few)
    where = f"run: {path} (while it runs: dartsim show {path})"

    serving: list[BaseProcess] = []

    def announce(_: object) -> None:
        errors.say(where)
        if show:
            from dartsim.cli.live import serve_beside

            serving.append(serve_beside(path))

    announced = Listener(run_started=announce)
    try:
        execute_with_progress(
            resolved, path, json_file, lambda bar: execute(resolved, path, [bar, announced], more_figures=bounds)
        )
    finally:
        for page in serving:
            errors.say("the run has ended; its page stays until Ctrl-C")
            with suppress(KeyboardInterrupt):
                page.join()


RESUME_OPTIONS = ("scheduler", "overrides", "hours", "json_file", "plugin", "debug")
"""Parameters that may be given together with a run's folder."""


def _refuse_options(context: typer.Context, run: str) -> None:
    """Refuse options that only apply to a new run."""
    for option in context.command.params:
        if option.name not in RESUME_OPTIONS and given(context, option.name):
            raise ConfigError(f"{run} is a run to resume, with a configuration of its own; leave {option.opts[0]} out")


def _resume(folder: Path, changes: Sequence[str], json_file: str | None) -> None:
    from dartsim.lab.bounds import bounds
    from dartsim.run.resume import resumable
    from dartsim.run.resume import resume as resume_run

    execute_with_progress(
        resumable(folder, changes),
        folder,
        json_file,
        lambda bar: resume_run(folder, changes, on_resume=_show_resume, instruments=[bar], more_figures=bounds),
    )


def execute_with_progress(
    config: Config, folder: Path, json_file: str | None, execute: Callable[[Instrument], tuple[RunDir, RunResult]]
) -> None:
    """Execute or resume a run with a progress bar, show its figures, and exit with the run's code."""
    from dartsim.lab.progress import run_bar
    from dartsim.observe.rundir import CONFIG

    cpu, wall = time.process_time(), time.perf_counter()

    def message() -> str:
        if (folder / CONFIG).is_file():
            return f"interrupted; this run has no figures yet\nresume it with: dartsim run {quote(str(folder))}"
        return "interrupted before the run began: nothing was written; the same command starts it again"

    moving = run_bar(errors, config.name, config.run.hours, simulated=config.backend.virtual)
    with report_interrupt(message), moving as bar:
        run_dir, ended = execute(bar)
        if not ended.interrupted:
            bar.done()
    seconds = {"cpu_seconds": round(time.process_time() - cpu, 3), "wall_seconds": round(time.perf_counter() - wall, 3)}
    _show_result(run_dir, ended, seconds, json_file)


def _show_result(run_dir: RunDir, ended: RunResult, seconds: Mapping[str, float], json_file: str | None) -> None:
    summary, place = run_dir.summary, quote(str(run_dir.path))
    plain = {name: value for name, value in summary.items() if name == "steady" or not isinstance(value, (dict, list))}
    value = {**plain, "num_updates": summary["total_updates"], **seconds, "run_dir": str(run_dir.path)}
    console = result(value, json_file)
    console.print(figure_table(run_dir.name, summary))
    console.say(FIGURES_NOTE)
    if "steady" in summary:
        from dartsim.observe.steady import steady_text  # imported here: it needs numpy

        console.say(steady_text(summary["steady"]))
    if ended.event_hash is not None:
        console.print(f"event hash {ended.event_hash}")
    parts = (f"{_learning_text(summary)}.", summary.get("verdict"), f"See it: dartsim show {place} --live")
    console.say(" ".join(part for part in parts if part))
    for alarm in summary["alarms"]:
        errors.say(f"alarm: {alarm_text(alarm)}")
    if ended.interrupted:
        errors.print(f"interrupted after {summary['simulated_hours']:.1f} hours of the run's time")
        errors.say(f"resume it with: dartsim run {place}")
        raise typer.Exit(130)
    if ended.failure is not None:
        raise typer.Exit(KINDS[ended.alarm or "nothing_trained"].code)


def _learning_text(summary: dict[str, Any]) -> str:
    """Describe what the model learned, without a full stop."""
    if summary["surrogate"]:
        return "surrogate policy: outcomes are drawn, nothing was learned"
    if "learning" not in summary:
        return f"policy {summary['config']['policy']['agent']['rule']} acted, and nothing was learned"
    hours, updates = summary["simulated_hours"], summary["total_updates"]
    time_taken = f"{hours:.1f} simulated hours" if summary["virtual"] else f"{60.0 * hours:.1f} minutes"
    done = f"{updates} updates and {time_taken}"
    held_out = summary["learning"]["held_out"]["success_rate"]
    if not held_out:
        return f"{done}; nothing was measured on held-out tasks (tasks.held_out, trainer.evaluation)"
    return f"success on held-out tasks: {held_out[0]:.1%} -> {held_out[-1]:.1%}, in {done}"


def _show_resume(config: Config, resume_point: ResumePoint | None) -> None:
    """Print where the run resumes."""
    if resume_point is None:
        errors.print("the run had not begun: starting it")
        return
    facts = resume_point.as_json()
    text = f"resumed: from hour {facts['from_hours']:.2f} of {config.run.hours:g} and update {facts['from_update']}"
    if facts["interrupted_attempts"]:
        text += f"; {facts['interrupted_attempts']} interrupted attempts restart"
    if facts["returned"]:
        text += f"; {facts['returned']} leased trajectories are returned"
    if facts["undone_updates"]:
        text += f"; {facts['undone_updates']} updates that no checkpoint contains are repeated"
    errors.print(text)
    for why in facts["torn_checkpoints"]:
        errors.print(f"a checkpoint is incomplete, using the previous one: {why}", style="yellow")
