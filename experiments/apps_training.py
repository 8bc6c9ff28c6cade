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
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.core.types import Observation, Task
from dartsim.envs.base import WAIT
from dartsim.real.desktop.tasks.playing import ScriptedAttempt, play
from dartsim.real.learners.warm_start import Demonstration, WarmStart, warm_start
from dartsim.real.osworld.settings import DesktopSettings
from dartsim.real.scoring.evaluator_venv import default_home
from dartsim.real.scratch import scratch_folder
from dartsim.run.demonstrations import history_of
from dartsim.run.prepare import prepare
from experiments.many_turns import activity, gain, rewards, with_model
from experiments.osworld_apps_work import apps_desktops
from experiments.osworld_solutions import COMMANDS
from experiments.real_loop import config, run_seed, sizes, worst_error
from experiments.study import Experiment, Figures, Options, short_commit

TERMINAL, PREFERENCES, MAXIMIZE, SAVE = "key ctrl+alt+t", "key ctrl+p", "double 59 21", "click 116 117"


def _vlc(*clicks: str) -> tuple[str, ...]:
    return PREFERENCES, MAXIMIZE, *clicks, SAVE, "done"


SOLUTIONS: Mapping[str, tuple[str, ...]] = {
    **{f"os/{task}": (TERMINAL, f"type {command}\\n", "done") for task, command in COMMANDS.items()},
    "vlc/a5bbbcd5-b398-4c91-83d4-55e1e31bbb81": _vlc("click 12 38"),
    "vlc/f3977615-2b45-4ac5-8bba-80c17dbe2a37": _vlc("click 2 63"),
    "gimp/d52d6308-ec58-42b7-a2c9-de80e4837b2b": ("key tab", "done"),
    "chrome/12086550-11c0-466b-b367-1d9e75b3910e": (
        "key ctrl+l",
        "type chrome://password-manager/passwords\\n",
        "done",
    ),
}
"""Single actions that solve each task, in the compact grammar on 120 × 120 cells. The teacher adds waits."""
LIST, GRID = "training", 120
QUICK_TASKS = 2
MAX_PIXELS = 448 * 252
"""What the model's processor leaves of a screenshot."""
PLAYS, MISTAKES = 4, 0.3
"""Times that the teacher plays each task, and how often it makes a mistake before an action, but for the first time."""
ERRS = 0.5
"""Share of the replies that the base model learns last which are drawn by chance."""
STEPS, ERRING_STEPS = 200, 40
"""Supervised steps of the base model: on the right replies, and on those with replies by chance."""
ATTEMPTS = 5
"""At each task, before and after the training."""


def replies() -> list[str]:
    """Return what the model can say."""
    return sorted({reply for solution in SOLUTIONS.values() for reply in solution} | {"wait"})


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


class Played(NamedTuple):
    """What a teacher did at a task, and which of its actions were mistakes."""

    task: Task
    attempt: ScriptedAttempt
    mistakes: frozenset[int]


def with_mistakes(solution: Sequence[str], rate: float, rng: np.random.Generator) -> tuple[list[str], frozenset[int]]:
    """Return a solution with replies by chance before some of its actions, and the places of these."""
    actions: list[str] = []
    mistakes: set[int] = set()
    for action in solution:
        if rng.random() < rate:
            mistakes.add(len(actions))
            actions.append(str(rng.choice([reply for reply in replies() if reply != "done"])))
        actions.append(action)
    return actions, frozenset(mistakes)


async def played(settings: Config, folder: Path) -> list[Played]:
    """Play the tasks on real desktops, and return what solved them; not every mistake can be mended.

    Raises:
        ConfigError: If a solution without mistakes does not solve its task.
    """
    name, options = settings.policy.action_grammar
    rng = np.random.default_rng(settings.run.seed)
    plans = iter(
        [
            (task, number, *with_mistakes(SOLUTIONS[f"{task.domain}/{task.id}"], MISTAKES if number else 0.0, rng))
            for task in prepare(settings).tasks
            for number in range(PLAYS)
        ]
    )
    solved: list[Played] = []
    desktop = DesktopSettings(grammar=name, grammar_options=options)
    async with apps_desktops(folder, default_home(), desktop) as (provider, _):

        async def play_some(slot: int) -> None:
            for task, number, actions, mistakes in plans:
                attempt = await play(provider, task, actions, slot=slot)
                if attempt.score == 1.0:
                    solved.append(Played(task, attempt, mistakes))
                elif not number:
                    raise ConfigError(
                        f"the solution of {task.domain}/{task.id} scores {attempt.score:g} on this machine"
                    )

        async with asyncio.TaskGroup() as group:
            for slot in range(settings.rollout.num_envs):
                group.create_task(play_some(slot))
    return solved


def lessons(shown: Sequence[Played]) -> list[Demonstration]:
    """Return the right reply at each turn, after what the teacher really did before it."""
    turns: list[Demonstration] = []
    for task, attempt, mistakes in shown:
        planned, wrong = count(), list[bool]()
        for action in attempt.actions:  # a WAIT, which the player added, belongs to the action before it
            wrong.append(wrong[-1] if action == WAIT else next(planned) in mistakes)
        done: list[Demonstration] = []
        for number, (frame, action) in enumerate(zip(attempt.frames, attempt.actions, strict=False)):
            seen, said = Observation(frame, task.instruction), "wait" if action == WAIT else action
            right = next(a for a, bad in zip(attempt.actions[number:], wrong[number:], strict=True) if not bad)
            turns.append(Demonstration(seen, history_of(done), "wait" if right == WAIT else right))
            done.append(Demonstration(seen, (), said))
    return turns


def by_chance(turns: Sequence[Demonstration], rng: np.random.Generator) -> list[Demonstration]:
    """Return turns some of whose replies are drawn by chance."""
    return [turn._replace(action=str(rng.choice(replies()))) if rng.random() < ERRS else turn for turn in turns]


def make_base(settings: Config, shown: Sequence[Played], folder: Path, *, quick: bool = False) -> Path:
    """Make a model that has learned the tasks and errs, and return its folder."""
    from dartsim.real.learners.torch_learner import TorchLearner
    from dartsim.real.vlm import build
    from dartsim.real.vlm.model import one_thread
    from dartsim.real.vlm.plan import vlm_config

    one_thread()
    seed = settings.run.seed
    tiny = vlm_config(settings)
    words = sorted({f" {word}" for each in shown for word in each.task.instruction.split()})
    vlm = build(replace(tiny, max_pixels=MAX_PIXELS, words=(*tiny.words, *words)), seed=seed)
    right, rng = lessons(shown), np.random.default_rng(seed)
    common = WarmStart(batch=32, seed=seed)
    steps = (STEPS, ERRING_STEPS) if not quick else (4, 4)
    warm_start(vlm, right, replace(common, steps=steps[0], learning_rate=2e-3))
    erring = [turn for _ in range(4) for turn in by_chance(right, rng)]
    warm_start(vlm, erring, replace(common, steps=steps[1], learning_rate=1e-3))
    folder.mkdir(parents=True, exist_ok=True)
    TorchLearner(vlm, settings.trainer, seed=seed).save_model(folder)
    return folder


def measure(options: Options) -> Figures:
    """Make the base model, run once, and the twin; attempt the tasks before and after."""
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
        before = rewards(real, folder / "before", attempts=attempts)
        options.console.print(f"the base model succeeds in {fmean(before.values()):.0%} of {len(before)} attempts")
        run = {**run_seed(real, folder), **activity(real, folder / "real")}
        after = rewards(with_model(settings, folder / "real" / "model"), folder / "after", attempts=attempts)
        return {
            "backend": "apps_training",
            **run,
            **gain(before, after),
            "tasks": len(prepare(settings).tasks),
            "load_average": round(load_average, 2),
            "config": sizes(settings),
        }


def found(figures: Figures) -> str:
    """Say what was run, what was learned, and how well it was predicted."""
    name, error = worst_error(figures)
    gained, settings = figures["success_gain"], figures["config"]
    return (
        f"{settings['num_envs']} desktops of `apps`, {settings['minutes']:.3g} minutes, {figures['attempts']} attempts "
        f"of {figures['turns_per_attempt']:.1f} turns at {figures['tasks']} tasks of OSWorld: success "
        f"{figures['success_rate_first']:.0%} → {figures['success_rate_last']:.0%} "
        f"({100 * gained['mean']:+.0f} ± {100 * (gained['half_width'] or 0.0):.0f} points in "
        f"{figures['held_out_tasks']} attempts before and after), {figures['lost_requests']} requests lost; largest "
        f"error of a figure {abs(error):.1%} ({name}). Recorded at commit {short_commit(figures)}.\n"
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
