"""verl's public table of single-turn mathematics: fitted on two rows, so that any other row is a prediction.

python -m experiments.verl_table                                          the two rows again, and one other
python -m experiments.verl_table --train-gpus 32 --rollout-gpus 32 --theta 0.5 --require-batches 1

Fitted are three numbers: how long the longest reply takes alone, how much every other reply on its GPU adds, and the
rest of a step. A 16th of the cluster is simulated, with the same load a GPU. What two rows cannot say is assumed:
the spread of lengths, and that half of an update's time shrinks with the trainer's GPUs. Replies grew longer during
the published runs: step times are means over 400 steps, and the first 100 steps took less than a quarter of the time.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from dartsim.config import from_tree, preset
from dartsim.config.load import merge
from dartsim.core.errors import ConfigError
from dartsim.run.prepare import prepare
from dartsim.run.simulation import run_simulation
from experiments.study import Experiment, Figures, Options, Rows, rows_of, short_commit, table

SCALE = 16
"""GPUs and prompts of the published runs for one of the simulated ones."""
PROMPTS, REPLIES, MINI_BATCH = 512, 16, 32
"""Of a step: prompts, replies to each, prompts of a mini-batch."""
MEAN_SHARE, SD_SHARE = 0.10, 0.20
"""Length of a reply, as a share of the longest (28,672 tokens): mean and spread are assumed."""
SCALING_SHARE = 0.5
"""Share of the fitted update that is inversely proportional to the trainer's GPUs: assumed."""

SYNC = {
    "gpus": 128,
    "step_seconds": 356.3,
    "gen_wait_seconds": 177.9,
    "old_logp_seconds": 53.9,
    "update_seconds": 113.8,
}
ASYNC = {"train_gpus": 64, "rollout_gpus": 64, "theta": 0.0, "step_seconds": 231.3, "gen_wait_seconds": 128.5}
ASYNC_UPDATE_SECONDS = 98.8
OTHERS = (
    (64, 64, 0.1, 4, True),
    (64, 64, 0.5, 4, False),
    (64, 64, 0.5, 4, True),
    (64, 64, 0.5, 1, True),
    (32, 32, 0.5, 1, True),
    (96, 32, 0.5, 4, True),
    (32, 96, 0.5, 4, True),
)
"""Further rows that a full run predicts: modes, updates of other sizes, other splits."""
SOURCE = "verl, docs/advance/fully_async.md: H20, Qwen2.5-Math-7B, DAPO 28K, n = 16, mini-batch 32, T = 4"


@dataclass(frozen=True, slots=True)
class Row:
    """What is asked: a row of the table.

    Attributes:
        train_gpus: Of the trainer; 0: all GPUs do both, one after the other (the synchronous rows).
        rollout_gpus: Of the engines.
        theta: Share of a step's prompts that may be begun before the weights they will train.
        require_batches: Mini-batches of a local update.
        partial: Whether replies go on over a weight change, instead of being waited for.
    """

    train_gpus: int
    rollout_gpus: int
    theta: float = 0.0
    require_batches: int = 4
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Fit:
    """What is fitted.

    Attributes:
        longest_seconds: The longest reply, alone on its GPU.
        beside_seconds: Added to it by each other reply there.
    """

    longest_seconds: float
    beside_seconds: float


def update_seconds(train_gpus: int) -> float:
    """Return the updates of one step on a trainer of its own."""
    return ASYNC_UPDATE_SECONDS * (1.0 - SCALING_SHARE + SCALING_SHARE * ASYNC["train_gpus"] / train_gpus)


def predict(row: Row, fit: Fit, *, steps: int = 12, seed: int = 0) -> Figures:
    """Simulate a row; return seconds of a step and its parts, and hours of 100 and 400 steps."""
    synchronous = row.train_gpus == 0
    updates = 1 if synchronous else PROMPTS // (MINI_BATCH * row.require_batches)
    if synchronous:
        train = SYNC["update_seconds"] + SYNC["old_logp_seconds"]
        rest = SYNC["step_seconds"] - SYNC["gen_wait_seconds"] - train
    else:
        train = update_seconds(row.train_gpus)
        rest = ASYNC["step_seconds"] - ASYNC["gen_wait_seconds"] - ASYNC_UPDATE_SECONDS
    config = from_tree(_tree(row, fit, updates, train, rest, steps, seed))
    figures = run_simulation(prepare(config)).figures
    step = 60.0 * figures["minutes_per_version"] * updates
    return {
        "step_seconds": step,
        "gen_wait_seconds": figures["trainer_shares"]["wait_data"] * step,
        "update_seconds": train,
        "hours_100_steps": step * 100 / 3600.0,
        "hours_400_steps": step * 400 / 3600.0,
    }


def _tree(row: Row, fit: Fit, updates: int, train: float, rest: float, steps: int, seed: int) -> Figures:
    """Return the configuration of a row: its scheduler over the scaled cluster."""
    groups = PROMPTS // SCALE // updates
    ahead = (1.0 + row.theta) * updates
    scheduler = preset("areal-eta0" if row.train_gpus == 0 else "verl-partial" if row.partial else "verl-async")
    slots = min(16 * row.rollout_gpus // SCALE, round(ahead * groups)) * REPLIES
    changes = {
        "run": {"hours": steps * 400.0 / 3600.0, "updates": steps * updates, "seed": seed, "warmup_share": 0.3},
        "tasks": {"source": "generated", "count": 256},
        "rollout": {"num_envs": slots, "num_workers": row.rollout_gpus // SCALE, "max_turns": 1},
        "curation": {
            "attempts": {"group_size": REPLIES},
            "batch": {"min_groups": groups, "max_groups": groups, "rule": "ready"},
            "groups": {"drop_all_failed": False, "drop_solved": False, "drop_equal": False},
            "admission": {"ahead_batches": ahead, "open_batches": "none"},
            "store": "memory",
        },
        "trainer": {"publish_every": updates},
        "recorder": {"max_segments": 0},
        "cluster": {
            "hosts": {"count": 1, "cores": 1e4, "memory_gib": 1e4, "concurrent_starts": 10_000},
            "env": {"latency": dict.fromkeys(("start", "boot", "setup", "step", "evaluate", "teardown"), 0.0)},
            "engine": {
                "model": "shared",
                "batch_seconds": fit.longest_seconds - fit.beside_seconds,
                "request_seconds": fit.beside_seconds,
                "batch_spread": {
                    "kind": "capped",
                    "cap_seconds": 1.0,
                    "of": {"kind": "lognormal", "mean_seconds": MEAN_SHARE, "sd_seconds": SD_SHARE},
                },
                "overhead_seconds": 0.0,
                "transfer_seconds": rest,
            },
            "learner": {"fixed_seconds": train / updates, "kilotoken_seconds": 0.0},
        },
    }
    return merge(scheduler, changes)


def fit_rows(*, steps: int = 12, rounds: int = 6) -> Fit:
    """Return the fit that meets both rows' step times best, by Newton's method with differences.

    Both times are nearly linear in both numbers: the tail of the longest reply, and the load of all.
    """
    rows = (Row(0, 128), Row(64, 64))
    wanted = (SYNC["step_seconds"], ASYNC["step_seconds"])

    def error(fit: Fit) -> tuple[float, float]:
        first, second = (predict(row, fit, steps=steps)["step_seconds"] for row in rows)
        return first - wanted[0], second - wanted[1]

    fit = Fit(155.0, 3.0)
    errors = error(fit)
    by_tail = _slopes(errors, error(Fit(1.2 * fit.longest_seconds, fit.beside_seconds)), 0.2 * fit.longest_seconds)
    by_load = _slopes(errors, error(Fit(fit.longest_seconds, 2.0 * fit.beside_seconds)), fit.beside_seconds)
    determinant = by_tail[0] * by_load[1] - by_tail[1] * by_load[0]
    best, least = fit, errors
    for _ in range(rounds):
        longest = fit.longest_seconds - (errors[0] * by_load[1] - errors[1] * by_load[0]) / determinant
        beside = fit.beside_seconds - (by_tail[0] * errors[1] - by_tail[1] * errors[0]) / determinant
        fit = Fit(min(max(60.0, longest), 400.0), min(max(0.1, beside), 20.0))
        errors = error(fit)
        if max(map(abs, errors)) < max(map(abs, least)):
            best, least = fit, errors
        if max(map(abs, errors)) < 1.0:
            break
    return best


def _slopes(before: tuple[float, float], after: tuple[float, float], by: float) -> tuple[float, float]:
    return (after[0] - before[0]) / by, (after[1] - before[1]) / by


def measure(options: Options) -> Figures:
    """Fit both rows, and predict the one that was asked for."""
    row = row_of(options.own)
    steps = 8 if options.quick else 16
    fit = fit_rows(steps=steps, rounds=3 if options.quick else 6)
    others = [Row(*other) for other in (OTHERS[:1] if options.quick else OTHERS) if Row(*other) != row]
    return {
        **over_seeds(row, fit, steps, options.seeds),
        "predicted_rows": [{"row": asdict(one), **over_seeds(one, fit, steps, options.seeds)} for one in others],
        "row": asdict(row),
        "fit": asdict(fit),
        "fitted_rows": [
            {
                "row": asdict(known),
                "published_step_seconds": published["step_seconds"],
                **predict(known, fit, steps=steps),
            }
            for known, published in ((Row(0, 128), SYNC), (Row(64, 64), ASYNC))
        ],
        "config": {"source": SOURCE, "scale": SCALE, "mean_share": MEAN_SHARE, "sd_share": SD_SHARE},
    }


def over_seeds(row: Row, fit: Fit, steps: int, num_seeds: int) -> Figures:
    """Return the mean over seeds of what is predicted for a row."""
    seeds = [predict(row, fit, steps=steps, seed=seed) for seed in range(num_seeds)]
    return {name: sum(run[name] for run in seeds) / num_seeds for name in seeds[0]}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a row."""
    parser.add_argument("--train-gpus", type=_gpus, default=64, metavar="N", help="of the trainer; 0: synchronous rows")
    parser.add_argument("--rollout-gpus", type=_gpus, default=64, metavar="N")
    parser.add_argument("--theta", type=float, default=0.5)
    parser.add_argument("--require-batches", type=int, default=4, choices=(1, 2, 4, 8, 16))
    parser.add_argument("--partial", action="store_true", help="replies continue over a weight sync")


def _gpus(text: str) -> int:
    gpus = int(text)
    if gpus % SCALE or gpus < 0:
        raise argparse.ArgumentTypeError(f"must be a multiple of {SCALE}, got {gpus}: 1/{SCALE} is simulated")
    return gpus


def row_of(own: argparse.Namespace) -> Row:
    """Return the row that was asked for."""
    if not own.rollout_gpus:
        raise ConfigError(f"--rollout-gpus must be at least {SCALE}, got 0")
    row = Row(own.train_gpus, own.rollout_gpus, own.theta, own.require_batches, own.partial)
    return replace(row, theta=0.0, partial=False) if row.train_gpus == 0 else row


def verl_rows(recorded: Mapping[str, Any]) -> Rows:
    """The table of verl: the two fitted rows, with the published step, and the predicted ones."""
    columns = {
        "trainer : rollout GPUs": "{split}",
        "theta": "{row[theta]:g}",
        "mini-batches an update": "{row[require_batches]}",
        "partial": "{partial}",
        "step, published, s": "{published_step_seconds:.1f} (fitted)",
        "step, s": "{step_seconds:.1f}",
        "400 steps, h": "{hours_400_steps:.1f}",
    }
    entries = []
    for entry in (*recorded["fitted_rows"], recorded, *recorded["predicted_rows"]):
        trainer, rollout = entry["row"]["train_gpus"], entry["row"]["rollout_gpus"]
        split = f"{trainer} : {rollout}" if trainer else f"{rollout} for both"
        entries.append({**entry, "split": split, "partial": "yes" if entry["row"]["partial"] else "no"})
    return rows_of(columns, entries)


def verl_provenance(recorded: Mapping[str, Any]) -> str:
    """Return what was fitted, and where the figures were recorded, as a line of Markdown."""
    fit = recorded["fit"]
    return (
        f"Fitted: {fit['longest_seconds']:.0f} s for the longest reply alone, {fit['beside_seconds']:.2f} s for each "
        f"other one beside it. Recorded with {len(recorded['seeds'])} seeds at commit "
        f"{short_commit(recorded)}.\n"
    )


STUDY = Experiment(
    name="verl_table",
    about=str(__doc__),
    measure=measure,
    tables={"verl-table": lambda figures: table(*verl_rows(figures)) + "\n" + verl_provenance(figures)},
    seeds=2,
    add_arguments=add_arguments,
)

if __name__ == "__main__":
    STUDY.run()
