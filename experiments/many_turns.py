"""Long tasks for real: vLLM engines act on real desktops, a learner trains on all their turns, and a twin predicts it.

python -m experiments.many_turns            15 minutes; needs DARTSIM_VLLM_PYTHON and Docker
python -m experiments.many_turns --quick    two minutes: the same keys

The tasks are panels of 5 to 7 pages; the button of each page turns it, and an attempt has 9 turns. The base model
learned them on the mock desktop from a teacher that errs, so that every other click is beside the button. It is trained
with all four parts of DART's curation, truncated importance sampling, two passes over two mini-batches an update, and
one sequence for all turns between two cuts of the history. Held-out tasks are attempted before and after it, on real
desktops too. Prefix hits are those that the engines report with each reply.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from dartsim.config import Config
from dartsim.lab.comparison import half_width
from dartsim.observe.metrics import read_updates
from dartsim.observe.rundir import METRICS, read_run
from dartsim.observe.timings import read_timings
from dartsim.real.scratch import scratch_folder
from dartsim.rollout.history import num_images
from experiments.real_loop import config, mean_checks, prediction_found, require_vllm, run_seed, sizes
from experiments.study import Experiment, Figures, Options, short_commit

BY_CHANCE = 0.5
"""Share of the teacher's clicks that are drawn by chance."""
PRESENT_STEPS, STEPS, ERRING_STEPS = 150, 80, 30
"""Supervised steps of the base model: on single screenshots, with history, and after the teacher that errs."""


def make_base(settings: Config, folder: Path, *, quick: bool = False) -> Path:
    """Make a model that knows the tasks' twins on the mock desktop and errs, and return its folder."""
    import numpy as np

    from dartsim.envs.mock.suites import mock_tasks
    from dartsim.real.desktop.tasks.panel import PAGES
    from dartsim.real.learners.torch_learner import TorchLearner
    from dartsim.real.learners.warm_start import WarmStart, warm_start
    from dartsim.real.vlm import build
    from dartsim.real.vlm.model import one_thread
    from dartsim.real.vlm.plan import vlm_config
    from experiments.imperfect_teacher import Mistakes, imperfect_turns

    one_thread()
    seed = settings.run.seed
    taught = settings.replace(
        backend={"desktops": "mock"}, tasks={"source": "mock"}, rollout={"max_turns": 10 * max(PAGES), "warm_envs": 0}
    )
    rng = np.random.default_rng(seed)
    right, erring = (
        [
            turn
            for number, task in enumerate(mock_tasks("errands", 20 if quick else 150, seed, difficulty=max(PAGES) - 1))
            for turn in imperfect_turns(taught, task, number, mistakes, rng)
        ]
        for mistakes in (Mistakes(), Mistakes(by_chance=BY_CHANCE))
    )
    vlm = build(vlm_config(settings), seed=seed)
    common = WarmStart(batch=32, seed=seed)
    stages = (PRESENT_STEPS, STEPS, ERRING_STEPS) if not quick else (4, 4, 4)
    warm_start(vlm, right, replace(common, present_steps=stages[0], steps=stages[1], learning_rate=2e-3))
    warm_start(vlm, erring, replace(common, steps=stages[2], learning_rate=1e-3))
    folder.mkdir(parents=True, exist_ok=True)
    TorchLearner(vlm, settings.trainer, seed=seed).save_model(folder)
    return folder


def rewards(settings: Config, folder: Path, *, attempts: int = 1) -> dict[str, float]:
    """Attempt the held-out tasks, or all if none is, on real desktops and engines; return the rewards by attempt."""
    from dartsim.run.evaluation_results import EvaluationFolder, EvaluationPlan
    from dartsim.run.model import served_model
    from dartsim.run.policy_evaluation import evaluate_policy
    from dartsim.run.prepare import prepare_run

    prepared = prepare_run(settings, trains=False)
    tasks = prepared.held_out or prepared.tasks
    plan = EvaluationPlan(tasks=tasks, steps=[settings.rollout.max_turns], attempts=attempts)
    results = EvaluationFolder(folder, "policy")
    ended = evaluate_policy(prepared, plan, results, "", served=served_model(settings))
    return {f"{key.task}/{key.attempt}": result.score for key, result in ended.items() if result.score is not None}


def gain(before: Mapping[str, float], after: Mapping[str, float]) -> Figures:
    """Return the success before and after, and the difference with half its 95 % interval, paired by task."""
    both = sorted(before.keys() & after.keys())
    differences = [after[task] - before[task] for task in both]
    return {
        "held_out_tasks": len(both),
        "success_rate_first": fmean(before[task] for task in both),
        "success_rate_last": fmean(after[task] for task in both),
        "success_gain": {"mean": fmean(differences), "half_width": (half := half_width(differences))},
        "difference_low": None if half is None else fmean(differences) - half,
    }


def trained(
    settings: Config, folder: Path, tell: Callable[[str], Any], *, attempts: int = 1
) -> tuple[dict[str, float], Figures, dict[str, float]]:
    """Run a configuration and its twin, and attempt the tasks before and after; return rewards, figures, rewards."""
    before = rewards(settings, folder / "before", attempts=attempts)
    tell(f"the base model succeeds in {fmean(before.values()):.0%} of {len(before)} attempts")
    run = {**run_seed(settings, folder), **activity(settings, folder / "real")}
    after = rewards(with_model(settings, folder / "real" / "model"), folder / "after", attempts=attempts)
    tell(f"after {run['num_updates']} updates, the model succeeds in {fmean(after.values()):.0%}")
    return before, run, after


def activity(settings: Config, path: Path) -> Figures:
    """Return how long attempts and prompts were, and what each part of the method did in a run."""
    run = read_run(path)
    attempts = [entry for entry in read_timings(path) if entry["what"] == "attempt" and entry["reward"] is not None]
    policy = settings.policy
    images = [
        num_images(turn, max_images=policy.max_images, after_cut=policy.images_after_cut)
        for entry in attempts
        for turn in range(entry["turns"])
    ]
    updates = [record.metrics for record in read_updates(path / METRICS, last=run.summary["total_updates"])]
    return {
        "attempts": len(attempts),
        "turns_per_attempt": fmean(entry["turns"] for entry in attempts),
        "images_per_prompt": fmean(images),
        "images_max": max(images),
        "prefix_hit_share": run.summary["prefix_hit_share"],
        "computed_tokens": sum(metrics["learner/computed_tokens"] for metrics in updates),
        "turn_tokens": sum(metrics["learner/turn_tokens"] for metrics in updates),
        "mismatch_mean": fmean(metrics["learner/mismatch_mean"] for metrics in updates),
        "endings": run.summary["endings"],
        "pool": run.summary["pool"],
    }


def measure(options: Options) -> Figures:
    """Measure all seeds, one after the other: a real run needs the machine for itself."""
    require_vllm()
    own, load_average = options.own, os.getloadavg()[0]
    length = {"quick": options.quick, "minutes": own.minutes}
    configs = [config("many_turns", seed, **length) for seed in range(options.seeds)]
    before: dict[str, float] = {}
    after: dict[str, float] = {}
    runs: list[Figures] = []
    with nullcontext(own.out) if own.out is not None else scratch_folder("many-turns") as folder:
        for settings in configs:
            seed, path = settings.run.seed, folder / f"seed-{settings.run.seed}"

            def tell(text: str, seed: int = seed) -> None:
                options.console.print(f"seed {seed}: {text}")

            base = make_base(settings, path / "base", quick=options.quick)
            first, run, last = trained(with_model(settings, base), path, tell)
            before |= {f"{seed}/{task}": reward for task, reward in first.items()}
            after |= {f"{seed}/{task}": reward for task, reward in last.items()}
            runs.append(run)
    return {
        "backend": "many_turns",
        **gain(before, after),
        **{name: fmean(run[name] for run in runs) for name in AVERAGED},
        **{name: sum(run[name] for run in runs) for name in SUMMED},
        "images_max": max(run["images_max"] for run in runs),
        **mean_checks(runs),
        "runs": runs,
        "load_average": round(load_average, 2),
        "config": sizes(configs[0]),
    }


AVERAGED = ("turns_per_attempt", "images_per_prompt", "prefix_hit_share", "mismatch_mean", "sync_seconds_p50")
SUMMED = ("attempts", "num_updates", "computed_tokens", "turn_tokens", "failed_requests", "lost_requests")


def with_model(settings: Config, folder: Path) -> Config:
    """Return the configuration with a model from a folder."""
    return settings.replace(policy={"model": str(folder)})


def found(figures: Figures) -> str:
    """Say what was run, what was learned, and how well it was predicted."""
    settings, gained = figures["config"], figures["success_gain"]
    return (
        f"{settings['num_envs']} desktops of our image and {settings['engines']} vLLM engines, "
        f"{settings['minutes']:.3g} minutes, {figures['attempts']} attempts of "
        f"{figures['turns_per_attempt']:.1f} turns, at most {settings['max_images']} screenshots a prompt "
        f"({figures['images_per_prompt']:.1f} on average): {prediction_found(figures)}; "
        f"success on {figures['held_out_tasks']} held-out tasks {figures['success_rate_first']:.0%} → "
        f"{figures['success_rate_last']:.0%} ({100 * gained['mean']:+.0f} ± {100 * (gained['half_width'] or 0.0):.0f} "
        f"points); {figures['prefix_hit_share']:.0%} of the prompts' tokens from the engines' prefix caches; "
        f"{figures['turn_tokens'] / figures['computed_tokens']:.1f} times fewer trained tokens than with a sequence "
        f"per turn. Recorded at commit {short_commit(figures)}.\n"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the study's own options."""
    parser.add_argument("--minutes", type=float, help="length of the training")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="keep models, evaluations and run directories")


STUDY = Experiment(
    name="many_turns",
    about=str(__doc__),
    measure=measure,
    seeds=1,
    tables={"many-turns-found": found},
    add_arguments=add_arguments,
)

if __name__ == "__main__":
    STUDY.run()
