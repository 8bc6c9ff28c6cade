"""The ablation: DART's parts added one after another, added alone and left out, on a model that really learns.

python -m experiments.ablation                                 tasks of 1 to 4 turns: half an hour of CPU time
python -m experiments.ablation --suite long                    tasks of 6 to 15 turns
python -m experiments.ablation --arms dart "dart, one step"    only these arms
python -m experiments.ablation --quick                         one seed, cut short: the same keys

Finished runs are kept in runs/experiments: a study that was ended goes on with the same command.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dartsim.config import Config
from experiments.ablation_pictures import LOCKS_PICTURES, LONG_PICTURES
from experiments.learning_study import arm_names, learning_sweep, of_arm, paired, percent, points
from experiments.learning_suites import KINDS, SUITES, LearningRun
from experiments.study import Experiment, Figures, Options, Rows, recorded_line

SCREENING_SEEDS = 2
"""Seeds of other arms than ``CHOSEN``, on suites where a run is long."""

PARTS = {
    "attempts": "curation.attempts.rule={by_success|fixed}",
    "length": "curation.turn_limit.rule={by_success|fixed}",
    "entropy": "curation.selection.rule={high_entropy|all}",
    "alignment": "trainer.objective.importance={token|off}",
    "pool": "curation.pool.enabled={true|false}",
}
"""DART's parts in the paper's order: the setting with and without. ``alignment`` is truncated importance sampling."""

WITH_PART = {
    "attempts": ("curation.attempts.min_group_size=2", "curation.attempts.threshold=0.6"),
    "pool": ("curation.pool.collected_per_task=1",),
}
"""Further settings of a part."""

COUPLED = (
    "rollout.unit=batch",
    "rollout.lockstep=true",
    "rollout.sync.mode=drain",
    "rollout.sync.workers_at_a_time=all",
    "curation.groups.drop_all_failed=false",
    "curation.groups.drop_equal=false",
    "curation.groups.drop_solved=false",
    "trainer.wait_for_sync=true",
)
"""As the preset ``coupled``: lock-step turns, whole batches, nothing overlaps, every group is trained on."""


@dataclass(frozen=True, slots=True)
class Arm:
    """DART's parts that an arm has, whether its cluster is coupled, and what else it sets."""

    parts: tuple[str, ...] = ()
    coupled: bool = False
    changes: tuple[str, ...] = ()


_ALL = tuple(PARTS)

ADDED = {"+ attempts": 1, "… + length": 2, "… + entropy": 3, "dart - pool": 4, "dart": 5}
"""Arms with the first parts, in the paper's order: ``dart - pool`` has all but the last one."""

ARMS: Mapping[str, Arm] = {
    "coupled": Arm(coupled=True),
    "coupled, all parts": Arm(_ALL, coupled=True),
    "decoupled": Arm(),
    **{arm: Arm(_ALL[:count]) for arm, count in ADDED.items()},
    **{f"+ {part}": Arm((part,)) for part in _ALL[1:]},
    **{f"dart - {part}": Arm(tuple(other for other in _ALL if other != part)) for part in _ALL},
    "dart, stored kept": Arm(_ALL, changes=("curation.selection.keep_stored=true",)),
    "dart, successes kept": Arm(_ALL, changes=("curation.selection.keep_successes=true",)),
    "dart, one step": Arm(_ALL, changes=("trainer.optimizer.minibatches=1",)),
    "dart - entropy, by state": Arm(
        tuple(part for part in _ALL if part != "entropy"),
        changes=tuple(f"trainer.objective.advantage.{each}" for each in ("rule=states", "discount=0.95", "decay=0.8")),
    ),
}
"""What is compared. The last ones test why: entropy selection that ranks only the group's own turns, or only turns that
are made less likely; an update of one gradient step, in which nothing is clipped; and the advantages of ``dartsim``."""

CHOSEN: Mapping[str, tuple[str, ...]] = {
    "locks": ("coupled", "decoupled", "dart", "dart - pool", "dart - entropy", "dart, stored kept"),
    "long": ("decoupled", "dart", "dart - entropy", "dart - entropy, by state"),
}
"""Suite -> arms that get all seeds."""

BOUNDS: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "locks": {"dart": (0, 2, 4, 8), "dart - alignment": (4, 8)},
    "long": {"dart": (8,), "dart - alignment": (8,)},
}
"""Suite -> further staleness bounds of an arm, versions; all other decoupled runs have 1."""


def overrides(arm: str, bound: int, batch: int) -> tuple[str, ...]:
    """Return what distinguishes an arm at a staleness bound: parts, schedule, and attempts admitted ahead.

    Args:
        arm: One of ``ARMS``.
        bound: Staleness bound, versions.
        batch: Attempts of a batch.
    """
    own = ARMS[arm]
    chosen = [_switch(text, name in own.parts) for name, text in PARTS.items()]
    chosen += [setting for name in own.parts for setting in WITH_PART.get(name, ())]
    chosen += [f"curation.staleness.max_staleness={bound}", f"curation.max_ahead={(bound + 1) * batch}"]
    return (*chosen, *own.changes, *(COUPLED if own.coupled else ()))


def config(arm: str, seed: int, bound: int = 1, *, suite: str = "locks", quick: bool = False) -> Config:
    """Return the configuration of an arm."""
    plain = SUITES[suite].config(seed, quick=quick).curation
    bound = 0 if ARMS[arm].coupled else bound
    batch = plain.batch.max_groups * plain.attempts.group_size
    return SUITES[suite].config(seed, quick=quick, overrides=overrides(arm, bound, batch))


def jobs(suite: str, arms: Sequence[str], seeds: int) -> list[tuple[str, int, int]]:
    """Return arm, seed and staleness bound of every run of the study, the arms that matter first."""
    few = min(seeds, seeds if suite == "locks" else SCREENING_SEEDS)
    found = [(arm, seed, 1) for seed in range(few) for arm in (*CHOSEN[suite], *ARMS)]
    found += [(arm, seed, 1) for seed in range(few, seeds) for arm in CHOSEN[suite]]
    for arm, bounds in BOUNDS[suite].items():
        found += [(arm, seed, bound) for seed in range(few) for bound in bounds]
    return [job for job in dict.fromkeys(found) if job[0] in arms]


def _switch(text: str, on: bool) -> str:
    """Return ``name=first`` or ``name=second`` of ``name={first|second}``."""
    name, _, choice = text.partition("={")
    return f"{name}={choice.rstrip('}').split('|')[0 if on else 1]}"


PUBLISHED = {
    "baseline": 0.2867,
    "+ dynamic rollouts": 0.5090,
    "+ dynamic length": 0.6611,
    "+ high entropy": 0.6833,
    "+ distribution alignment": 0.7055,
    "all": 0.7228,
    "never-solved tasks, with the pool": 0.46,
    "distribution alignment, plateau with": 0.70,
    "distribution alignment, plateau without": 0.55,
}
"""DART's ablation on 45 tasks, pass@1 (arXiv 2509.23866 and its project page). Whether rows add up is not stated."""


def arms_table(figures: Figures) -> Rows:
    """Success of each arm, and its difference to the decoupled baseline and to the whole, seed by seed."""
    runs = figures["arms"]
    head = ["arm", "success", *KINDS, "over decoupled", "over dart", "updates", "seeds"]
    rows = []
    for arm in arm_names(runs):
        own = of_arm(runs, arm)
        kinds = [percent(run["by_kind_final"][kind] for run in own if kind in run["by_kind_final"]) for kind in KINDS]
        differences = [_over(runs, arm, other) for other in ("decoupled", "dart")]
        updates = f"{np.mean([run['num_updates'] for run in own]):.0f}"
        rows.append([arm, percent(_final(own)), *kinds, *differences, updates, str(len(own))])
    return head, rows


def _final(runs: Sequence[Figures]) -> list[float]:
    return [run["success_rate_final"] for run in runs]


def _over(runs: Sequence[Figures], arm: str, other: str) -> str:
    found = paired(runs, arm, other, "simulated_hours")
    return "–" if arm == other else points(found["mean"], found["half_width"])


def base_table(figures: Figures) -> Rows:
    """What the base models can do: tasks of each kind, and their success there."""
    runs = list({run["seed"]: run for run in figures["arms"]}.values())  # all arms of a seed share one
    rows = []
    for kind in KINDS:
        counts = [run["kinds"].get(kind, 0) for run in runs]
        rates = [run["by_kind_initial"][kind] for run in runs if kind in run["by_kind_initial"]]
        rows.append([kind, f"{np.mean(counts):.0f}", percent(rates) if rates else "–"])
    return ["kind", "held-out tasks", "base model"], rows


def cuts_table(figures: Figures) -> Rows:
    """Which turns selection drops."""
    names = ("own", "stored", "positive", "negative")
    rows = []
    for arm in arm_names(figures["arms"]):
        cuts = [run["cut_turns"] for run in of_arm(figures["arms"], arm)]
        if any(one.get("own_cut") for one in cuts):
            shares = [_cut_share(cuts, name) for name in names]
            rows.append([arm, *shares])
    return ["dropped turns", "own", "stored", "advantage above 0", "below 0"], rows


def _cut_share(cuts: Sequence[Figures], name: str) -> str:
    number = sum(one.get(name, 0) for one in cuts)
    return f"{100 * sum(one.get(f'{name}_cut', 0) for one in cuts) / number:.0f} %" if number else "–"


def provenance(figures: Figures) -> str:
    """Return what the recorded ablation was run with."""
    hours, minutes = figures["config"]["dart"]["run"]["hours"], figures["cpu_seconds"] / 60.0
    return recorded_line(figures, f"{hours:g} simulated hours a run", f"{minutes:.0f} CPU minutes in all")


def measure(options: Options) -> Figures:
    """Make every run of the suite that is not finished."""
    suite, quick = options.own.suite, options.quick
    arms = list(dict.fromkeys(options.own.arms))
    work = jobs(suite, arms, options.seeds)
    runs = learning_sweep(options, f"ablation-{suite}", [_run(suite, *job, quick=quick) for job in work])
    return {
        "suite": suite,
        "arms": [run for run in runs if run["bound"] == (0 if ARMS[run["arm"]].coupled else 1)],
        "staleness": [run for run in runs if run["arm"] == "dart"],
        "staleness_without_alignment": [run for run in runs if run["arm"] == "dart - alignment"],
        "published": PUBLISHED,
        "cpu_seconds": sum(run["cpu_seconds"] for run in runs),
        "config": {"dart": config("dart", 0, suite=suite, quick=quick).model_dump(mode="json")},
        "overrides": {arm: overrides(arm, 0 if ARMS[arm].coupled else 1, 64) for arm in arms},
    }


def _run(suite: str, arm: str, seed: int, bound: int, *, quick: bool) -> LearningRun:
    return SUITES[suite].run(arm, config(arm, seed, bound, suite=suite, quick=quick), quick=quick)


RECORDED_AS = {"locks": "ablation", "long": "ablation_long"}


def _own_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--suite", choices=list(SUITES), default="locks", help="tasks (default: locks)")
    words = "only these arms (default: all); a wrong name lists them"
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS), metavar="ARM", help=words)


STUDY = Experiment(
    name="ablation",
    about=str(__doc__),
    measure=measure,
    seeds=5,
    tables={
        "ablation-arms": arms_table,
        "ablation-base": base_table,
        "ablation-cuts": cuts_table,
        "ablation-provenance": provenance,
    },
    pictures=LOCKS_PICTURES,
    add_arguments=_own_options,
    record_as=lambda own: RECORDED_AS[own.suite],
)
LONG_STUDY = replace(
    STUDY,
    tables={name.replace("ablation", "ablation-long"): table for name, table in STUDY.tables.items()},
    pictures=LONG_PICTURES,
    recorded_as=RECORDED_AS["long"],
)

if __name__ == "__main__":
    STUDY.run()
