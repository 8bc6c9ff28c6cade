"""Predicts what training several turns in one sequence gains on DART's cluster, with the cost of a 7B model's update.

python -m experiments.packed_trainer            three seeds, 42 runs of 12 hours: about six minutes of CPU time
python -m experiments.packed_trainer --quick    the same keys in less than one

DART's update was fitted once (0.086 s per 1,000 tokens and 270 s). Every other variant pays for its own tokens, at that
rate times its operations per token over DART's (``dartsim.lab.operations``), as longer sequences attend to more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dartsim.config import Config
from dartsim.lab.comparison import over_seeds
from dartsim.lab.model_shapes import QWEN2_5_VL_7B
from dartsim.lab.operations import surrogate_lengths, turn_operations
from dartsim.run.prepare import prepare
from experiments.charts import BLUE, GRAY, GREEN, ORANGE, drawing, label_axes, rows_axis
from experiments.clusters import Cluster, run_clusters
from experiments.headline import PUBLISHED
from experiments.study import HALF_INTERVAL, Experiment, Figures, Options, Rows, StudyPicture, recorded_line, rows_of

GPUS = 12
"""Of DART's headline run: 4 with engines, 8 of the trainer."""

DART, OURS = "dart-measured", "dartsim"
BOUND_1 = ("curation.staleness.max_staleness=1", "curation.admission.ready_batches=1.0")
TOGETHER = ("policy.images_after_cut=2", "trainer.optimizer.pack=trajectories")

FIGURES = (
    "trained_turns_per_minute",
    "generated_turns_per_minute",
    "trainer_utilization",
    "env_utilization",
    "gpu_utilization",
    "prefix_hit_share",
    "tokens_per_trained_turn",
    "minutes_per_version",
    "staleness_mean",
    "staleness_max",
)


@dataclass(frozen=True, slots=True)
class Variant:
    """A preset with changes on DART's cluster, with so many of its GPUs for engines."""

    name: str
    preset: str
    changes: tuple[str, ...] = ()
    engines: int = 4

    def cluster(self, hours: float, seed: int) -> Cluster:
        """Return a run; the trainer's time is inversely proportional to its GPUs, but for the fixed part."""
        plain = Cluster(self.preset, hours, seed, self.changes, "dart")
        learner = plain.config.cluster.learner
        trainer = GPUS - self.engines
        kilotoken = learner.kilotoken_seconds * learner.gpus / trainer * operations_ratio(plain.config)
        split = (
            f"rollout.num_workers={self.engines}",
            f"cluster.learner.gpus={trainer}",
            f"cluster.learner.kilotoken_seconds={kilotoken!r}",
            *(("rollout.sync.workers_at_a_time=1",) if self.engines == 1 else ()),
        )
        return Cluster(self.preset, hours, seed, (*self.changes, *split), "dart")


def operations_ratio(config: Config) -> float:
    """Return the operations per token of an update, relative to those of DART's prompts and sequences."""
    return _operations_per_token(config) / _operations_per_token(Cluster(DART, 1.0, workload="dart").config)


def _operations_per_token(config: Config) -> float:
    prepared, packed = prepare(config), config.trainer.optimizer.pack == "trajectories"
    surrogate = config.surrogate
    rate = surrogate.mean_success or 0.0
    lengths = surrogate_lengths(surrogate, success_rate=rate, max_turns=config.rollout.max_turns)
    tokens = sum(
        each.tokens for length in lengths for each in prepared.prompts.training_sequences(length, packed=packed)
    )
    total = turn_operations(QWEN2_5_VL_7B, prepared.prompts, lengths, packed=packed).total
    return total * sum(lengths) / tokens


VARIANTS = (
    Variant("DART as measured", DART),
    Variant("DART, several turns a sequence", DART, TOGETHER),
    Variant("dartsim, one turn a sequence, bound 4", OURS, ("trainer.optimizer.pack=turns",)),
    Variant("dartsim, bound 1", OURS, BOUND_1),
    Variant("dartsim, bound 4", OURS),
)
SPLITS = tuple(
    Variant(f"dartsim, bound {bound}, {engines} + {GPUS - engines} GPUs", OURS, changes, engines)
    for bound, changes in ((1, BOUND_1), (4, ()))
    for engines in (1, 2, 3, 6)
)
"""Other splits of the GPUs: engines + trainer. The desktops stay 38."""

FASTER = Variant(
    f"dartsim, bound 4, 2 + {GPUS - 2} GPUs, half the fixed part", OURS, ("cluster.learner.fixed_seconds=135.0",), 2
)
"""What the part of an update that depends on nothing (saving, loading) costs."""


def measure(options: Options) -> Figures:
    """Simulate every variant with every seed."""
    hours = 4.0 if options.quick else 12.0
    variants = [*VARIANTS, FASTER, *(SPLITS[1::4] if options.quick else SPLITS)]
    clusters = [variant.cluster(hours, seed) for variant in variants for seed in range(options.seeds)]
    runs = run_clusters(clusters, options, "variants")
    found = {}
    for number, variant in enumerate(variants):
        own = runs[number * options.seeds : (number + 1) * options.seeds]
        made = variant.cluster(hours, 0).config
        seconds = 60.0 * sum(run["minutes_per_version"] for run in own) / len(own)
        found[variant.name] = {
            **over_seeds(own, FIGURES),
            "engines": variant.engines,
            "trainer_gpus": GPUS - variant.engines,
            "kilotoken_seconds": made.cluster.learner.kilotoken_seconds,
            "operations_per_token_ratio": operations_ratio(made),
            "fixed_share": made.cluster.learner.fixed_seconds / seconds,
            "event_hashes": [run["event_hash"] for run in own],
        }
    published = PUBLISHED["dart"]["trained_turns_per_minute"]
    return {
        "variants": found,
        "published_turns_per_minute": published,
        "config": {name: Cluster(name, hours, workload="dart").config.model_dump(mode="json") for name in (DART, OURS)},
    }


def _rows(figures: Figures) -> Iterator[Figures]:
    for name, found in figures["variants"].items():
        ratio = found["trained_turns_per_minute"]["mean"] / figures["published_turns_per_minute"]
        yield {"name": name, "ratio": ratio, **found}


def table(figures: Figures) -> Rows:
    """Every variant."""
    columns = {
        "variant": "{name}",
        "trained turns/min": "{trained_turns_per_minute:.1f}",
        "over DART's 43.6": "{ratio:.2f}x",
        "tokens per turn": "{tokens_per_trained_turn[mean]:,.0f}",
        "trainer busy, %": "{trainer_utilization[mean]:.0p}",
        "fixed part of a version, %": "{fixed_share:.0p}",
        "generated turns/min": "{generated_turns_per_minute[mean]:.0f}",
        "staleness": "{staleness_mean[mean]:.1f}",
    }
    return rows_of(columns, _rows(figures))


@drawing(3.4)
def packed(figure: Any, figures: Figures) -> None:
    """Trained turns per minute of the variants, and by the split of the GPUs."""
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1.0))
    published = figures["published_turns_per_minute"]
    names = [variant.name for variant in VARIANTS]
    for row, name in enumerate(names):
        of = figures["variants"][name]["trained_turns_per_minute"]
        left.barh([row], [of["mean"]], xerr=[of["half_width"] or 0.0], color=ORANGE if row < 2 else BLUE)
        left.annotate(f"{of['mean']:.0f}", (of["mean"], row), (6, 0), textcoords="offset points", va="center")
    rows_axis(left, names)
    for line, label in ((published, "published"), (2.0 * published, "twice that")):
        left.axvline(line, color=GRAY, linestyle=":")
        left.annotate(label, (line, -0.55), (2, 0), textcoords="offset points", color=GRAY, fontsize=7)
    label_axes(left, "DART's cluster: 4 engines, 8 GPUs that train", "trained turns/min")
    for bound, color, marker in ((1, GREEN, "s"), (4, BLUE, "o")):
        own = [
            each
            for name, each in figures["variants"].items()
            if name.startswith(f"dartsim, bound {bound}") and name != FASTER.name
        ]
        own.sort(key=lambda each: int(each["engines"]))
        means = [each["trained_turns_per_minute"]["mean"] for each in own]
        right.plot([each["engines"] for each in own], means, color=color, marker=marker, label=f"bound {bound}")
    right.axhline(2.0 * published, color=GRAY, linestyle=":")
    right.legend()
    label_axes(right, "12 GPUs", "engines (the others train)")


def provenance(figures: Figures) -> str:
    """What was recorded."""
    return recorded_line(figures, f"{figures['config'][OURS]['run']['hours']:g} simulated hours each", HALF_INTERVAL)


STUDY = Experiment(
    name="packed_trainer",
    about=str(__doc__),
    measure=measure,
    tables={"packed-trainer": table, "packed-trainer-provenance": provenance},
    pictures={
        "packed-trainer": StudyPicture(
            "Trained turns per minute on DART's cluster: several turns in one sequence, and the split of GPUs", packed
        )
    },
)

if __name__ == "__main__":
    STUDY.run()
