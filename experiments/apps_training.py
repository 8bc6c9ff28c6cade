"""A tiny model learns tasks of OSWorld on real desktops of the image ``apps``, and a twin predicts the run.

python -m experiments.apps_training --tasks OSWorld/evaluation_examples            half an hour; needs Docker
python -m experiments.apps_training --tasks OSWorld/evaluation_examples --quick    a few minutes: the same keys

The tasks are twelve of OSWorld, of the desktop, VLC, GIMP and Chrome. A reply of the model is one of a list of single
actions: a key, a click, a command that is typed, a wait, or done. A teacher solves the tasks on real desktops, with
mistakes that it mends; the base model has learned its replies, then some that are drawn by chance. The tasks are
attempted before and after the training. Screenshots have 1920 × 1080 pixels up to the model, whose processor shrinks
them; ``desktop-env`` scores in the sandbox, and engine and learner run in this process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
from contextlib import nullcontext
from pathlib import Path

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.core.types import Ending
from dartsim.real.processes import boot_id, pid_namespace
from dartsim.real.scratch import scratch_folder
from dartsim.run.prepare import prepare
from experiments.apps_training_solutions import SOLUTIONS, replies
from experiments.many_turns import gain, trained, with_model
from experiments.real_loop import config, prediction_found, sizes
from experiments.study import Experiment, Figures, Options, short_commit

LIST, GRID = "training", 120
QUICK_TASKS = 2
ENDINGS = {Ending.DONE, Ending.FAIL, Ending.TURN_LIMIT, Ending.CANCELLED}
"""Of attempts that are not masked by a fault; the end of the run cancels the last ones."""
ATTEMPTS = 5
"""At each task, before and after the training."""


def training_config(seed: int, tasks: Path, folder: Path, *, quick: bool, minutes: float | None) -> Config:
    """Return the configuration of the run, whose list of tasks is written to a folder."""
    listed: dict[str, list[str]] = {}
    for name in list(SOLUTIONS)[: QUICK_TASKS if quick else None]:
        domain, _, task = name.partition("/")
        listed.setdefault(domain, []).append(task)
        (folder / "examples" / domain).mkdir(parents=True, exist_ok=True)
        shutil.copy(tasks / "examples" / f"{name}.json", folder / "examples" / domain)
    (folder / f"{LIST}.json").write_text(json.dumps(listed))
    changes = [
        f"tasks.folder={json.dumps(str(folder.resolve()))}",
        f"tasks.list_name={LIST}",
        f"policy.actions={json.dumps(replies())}",
        f"policy.grid={GRID}",
    ]
    return config("apps_training", seed, quick=quick, minutes=minutes, changes=changes)


def measure(options: Options) -> Figures:
    """Make the base model, run once, and the twin; attempt the tasks before and after."""
    from experiments.apps_training_work import make_base, played
    from experiments.desktop_work import left_containers

    own, load_average = options.own, os.getloadavg()[0]
    if own.tasks is None:
        raise ConfigError("--tasks names the folder of OSWorld's task files, evaluation_examples of its repository")
    attempts = 1 if options.quick else ATTEMPTS
    with nullcontext(own.out) if own.out is not None else scratch_folder("apps-training") as folder:
        settings = training_config(0, own.tasks, folder / "tasks", quick=options.quick, minutes=own.minutes)
        base = folder / "base"
        if not base.is_dir():
            make_base(settings, asyncio.run(played(settings, folder)), base, quick=options.quick)
        real = with_model(settings, base)
        before, run, after = trained(real, folder, options.console.print, attempts=attempts)
        return {
            "backend": "apps_training",
            **run,
            **gain(before, after),
            "masked_attempts": sum(number for ending, number in run["endings"].items() if ending not in ENDINGS),
            "leaked_containers": left_containers(f"{boot_id()}:{pid_namespace()}:{os.getpid()}:"),
            "tasks": len(prepare(settings).tasks),
            "load_average": round(load_average, 2),
            "config": sizes(settings),
        }


def found(figures: Figures) -> str:
    """Say what was run, what was learned, and how well it was predicted."""
    gained, settings = figures["success_gain"], figures["config"]
    return (
        f"{settings['num_envs']} desktops of `apps`, {settings['minutes']:.3g} minutes, {figures['attempts']} attempts "
        f"of {figures['turns_per_attempt']:.1f} turns at {figures['tasks']} tasks of OSWorld: success "
        f"{figures['success_rate_first']:.0%} → {figures['success_rate_last']:.0%} "
        f"({100 * gained['mean']:+.0f} ± {100 * (gained['half_width'] or 0.0):.0f} points in "
        f"{figures['held_out_tasks']} attempts before and after); requests lost: {figures['lost_requests']}, attempts "
        f"masked and repeated: {figures['masked_attempts']}, containers left: {figures['leaked_containers']}. Twin: "
        f"{prediction_found(figures)}. "
        f"Recorded at commit {short_commit(figures)}.\n"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the study's own options."""
    parser.add_argument("--tasks", type=Path, metavar="FOLDER", help="OSWorld's evaluation_examples")
    parser.add_argument("--minutes", type=float, help="length of the training")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="keep models, evaluations and run directories; its base is reused"
    )


STUDY = Experiment(
    name="apps_training",
    about=str(__doc__),
    measure=measure,
    seeds=1,
    tables={"apps-training-found": found},
    add_arguments=add_arguments,
)

if __name__ == "__main__":
    STUDY.run()
