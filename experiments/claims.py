"""The published claims of asynchronous training, each run on one simulator, and whether what comes out agrees.

python -m experiments.claims            three seeds: about eight minutes on two cores
python -m experiments.claims --quick    the same keys, fewer arms, in less than one
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from dartsim.config import Config
from dartsim.lab.bounds import bounds, desktop_bound, least_seconds, turn_load
from dartsim.lab.comparison import half_width
from dartsim.lab.sweep import ArmRun
from dartsim.run.prepare import PreparedRun, prepare
from dartsim.run.simulation import run_simulation
from experiments.claims_tables import PICTURES, TABLES
from experiments.claims_verdicts import gpu_definitions, verdicts
from experiments.clusters import Cluster
from experiments.study import Experiment, Figures, Options

MEANS = (
    "trained_turns_per_minute",
    "generated_turns_per_minute",
    "env_utilization",
    "gpu_utilization",
    "gpu_utilization_rollout_phase",
    "gpu_peak_share",
    "all_gpus_utilization",
    "hybrid_gpus_utilization",
    "training_share",
    "stopped_share",
    "staleness_mean",
    "wasted_share",
    "stale_share",
    "minutes_per_version",
    "killed_per_hour",
    "bound_trained_turns_per_minute",
    "bound_desktops",
    "bound_engines",
)
"""Figures of which there is a mean over seeds; the ones that are not the run's own are made by ``derived``."""


@dataclass(frozen=True, slots=True)
class ClaimArm:
    """One configuration of one claim."""

    claim: str
    series: str
    name: str
    preset: str
    hours: float
    workload: str | None = None
    changes: tuple[str, ...] = ()
    value: float | None = None

    def config(self, seed: int) -> Config:
        """Return the resolved configuration, without timelines and without a database."""
        return Cluster(self.preset, self.hours, seed, self.changes, self.workload).config


def run_arm(job: tuple[ClaimArm, int]) -> Figures:
    """Run an arm with one seed and return its figures."""
    arm, seed = job
    prepared = prepare(arm.config(seed))
    result = run_simulation(prepared)
    closed = bounds(prepared, result.figures, result.recorder.snapshots)
    parts: Mapping[str, float] = closed.pop("bounds", {})
    return {
        **result.figures,
        **closed,
        **derived(result.figures, prepared.config),
        "bound_desktops": parts.get("desktops"),
        "bound_engines": parts.get("engines"),
        "event_hash": result.event_hash,
    }


def derived(figures: Mapping[str, Any], config: Config) -> Figures:
    """Return what the claims ask for and no run writes.

    ``hybrid_gpus_utilization`` is for GPUs that train as well as answer: an update counts as busy throughout;
    ``all_gpus_utilization`` for rollout GPUs and the trainer's together, each its own share of busy time;
    ``stopped_share`` the share of desktop time spent waiting for a stopped pool; ``stale_share`` the share of
    attempts that were finished and dropped as too old; ``killed_per_hour`` requests that a restart cut off.
    """
    rollout, trainer = config.rollout.num_workers, config.cluster.learner.gpus
    busy, training = figures["gpu_utilization"], figures["trainer_shares"]["training"]
    attempts = figures["attempts"]
    return {
        "training_share": training,
        "hybrid_gpus_utilization": busy + training,
        "all_gpus_utilization": (rollout * busy + trainer * training) / (rollout + trainer),
        "stopped_share": figures["desktop_shares"]["sync_wait"],
        "stale_share": figures["dropped"].get("stale", 0) / attempts if attempts else 0.0,
        "killed_per_hour": figures["faults"].get("request_restarted", 0) / figures["simulated_hours"],
    }


def of_arm(arm: ClaimArm, runs: Sequence[Figures]) -> Figures:
    """Return what is written of an arm: means, intervals, and the staleness of all its trained turns."""
    histogram: Counter[str] = Counter()
    for run in runs:
        histogram.update(run["staleness_histogram"])
    return {
        "series": arm.series,
        "name": arm.name,
        "value": arm.value,
        "figures": {name: over(name, runs) for name in MEANS},
        "staleness_max": max(run["staleness_max"] for run in runs),
        "staleness_histogram": dict(sorted(histogram.items(), key=lambda item: int(item[0]))),
        "bound_by": runs[0]["bound_by"],
        "run": {
            "preset": arm.preset,
            "workload": arm.workload,
            "hours": arm.hours,
            "changes": list(arm.changes),
            "event_hashes": [run["event_hash"] for run in runs],
        },
    }


def over(name: str, runs: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return mean and 95 % half-width over runs; neither where some run has no such figure."""
    values = [run[name] for run in runs]
    if any(value is None for value in values):
        return {"mean": None, "half_width": None}
    return {"mean": fmean(values), "half_width": half_width(values)}


FREE = ("rollout.lockstep=false",)
BY_TASK = ('rollout.unit="task"',)
BY_ROLLOUT = ('rollout.unit="rollout"',)
DECOUPLED = (
    "curation.max_ahead=none",
    "curation.staleness.max_staleness=1",
    "curation.batch.min_groups=6",
    "curation.groups.drop_all_failed=true",
    "curation.groups.drop_equal=true",
    "curation.groups.drop_solved=true",
    "trainer.wait_for_sync=false",
)
PER_WORKER = ('rollout.sync.mode="restart"', "rollout.sync.workers_at_a_time=2", "cluster.engine.reload_seconds=300.0")
DESKTOPS = ("rollout.num_envs=38",)

LADDER: Mapping[str, tuple[str, ...]] = {
    "coupled": (),
    "+ own turns": FREE,
    "+ by task": BY_TASK,
    "+ by rollout": BY_ROLLOUT,
    "+ decoupled": DECOUPLED,
    "+ per-worker sync": PER_WORKER,
    "+ 38 desktops = DART": DESKTOPS,
}
"""From the preset ``coupled`` to ``dart-measured``: each rung has the changes of all before it."""

COUPLED = (
    "curation.max_ahead=64",
    "curation.staleness.max_staleness=0",
    "curation.batch.min_groups=8",
    "curation.groups.drop_all_failed=false",
    "curation.groups.drop_equal=false",
    "curation.groups.drop_solved=false",
    "trainer.wait_for_sync=true",
)
LEFT_OUT: Mapping[str, tuple[str, ...]] = {
    "DART": (),
    "DART, lock-step": ("rollout.lockstep=true", "trainer.wait_for_sync=true"),
    "DART, by task": BY_TASK,
    "DART, by batch": ('rollout.unit="batch"',),
    "DART, not decoupled": COUPLED,
    "DART, global sync": (
        'rollout.sync.mode="drain"',
        'rollout.sync.workers_at_a_time="all"',
        "cluster.engine.reload_seconds=250.0",
    ),
}
"""``dart-measured`` with one part as in the coupled baseline."""

ALL_TRAINED = tuple(f"curation.groups.drop_{which}=false" for which in ("all_failed", "equal", "solved"))
EVENLY = ('rollout.routing.rule="least_in_flight"',)
"""AReaL's sessions stay where they are put: all that wait for a drained pool go to its first worker back, and stay."""

NO_BOUNDS = (
    "curation.staleness.max_staleness=none",
    "curation.admission.ahead_batches=none",
    "curation.admission.open_batches=none",
)
MODES: Mapping[str, tuple[str, ...]] = {
    "waited for": ('rollout.sync.mode="drain"', 'rollout.sync.cache="kept"', "rollout.sync.resume_seconds=0.0"),
    "interrupted, cache lost": (),
    "paused, cache kept": ('rollout.sync.cache="kept"', "rollout.sync.resume_seconds=0.0"),
}
"""What a sync does to running requests, over the preset ``areal-eta4``, whose own mode is the second."""

REPLIES: Mapping[str, tuple[str, float | None, float]] = {
    "turns of a desktop (104 tokens)": ("dart", None, 3.0),
    "replies of 2,500 tokens": ("math", 2500.0, 1.5),
    "replies of 8,000 tokens": ("math", 8000.0, 3.0),
}
"""Workload, mean length where it is not the workload's own, simulated hours."""

INTERVALS = (30, 90, 300, 900)
"""Seconds between the end of a sync and the next publication."""

BOUNDS = (0, 1, 2, 4, 8)
RELOADS = (1, 10, 60, 300)
DESKTOPS_PER_GPU = (2, 5, 10, 15, 20, 30, 40)


def table_arms(*, quick: bool) -> Iterator[ClaimArm]:
    """Claim 1: the ladder from the coupled baseline to DART, and DART with one part left out."""
    hours = 3.0 if quick else 12.0
    changes: tuple[str, ...] = ()
    for name, more in LADDER.items():
        changes += more
        yield ClaimArm("table", "ladder", name, "coupled", hours, changes=changes)
    for name, less in LEFT_OUT.items():
        yield ClaimArm("table", "left out", name, "dart-measured", hours, changes=less)


def interrupt_arms(*, quick: bool) -> Iterator[ClaimArm]:
    """Claim 2: what a sync does to running requests, by time between syncs and length of replies."""
    for series, (workload, tokens, hours) in REPLIES.items():
        if quick and tokens == 2500.0:
            continue
        size = () if tokens is None else _replies(tokens)
        for seconds in INTERVALS[1::2] if quick else INTERVALS:
            for name, mode in MODES.items():
                every = (f"cluster.learner.fixed_seconds={seconds}.0", "cluster.learner.kilotoken_seconds=0.0")
                one = ("curation.batch.min_groups=1", "curation.batch.max_groups=1")
                changes = (*ALL_TRAINED, *NO_BOUNDS, *EVENLY, *one, *every, *size, *mode)
                long = min(hours, 1.0) if quick else hours
                yield ClaimArm("interrupt", series, name, "areal-eta4", long, workload, changes, float(seconds))


def _replies(tokens: float) -> tuple[str, ...]:
    """Return changes for one engine with 64 replies of that mean length, as wide as the workload's."""
    return (
        "rollout.num_envs=64",
        "rollout.num_workers=1",
        f'cluster.engine.reply_tokens={{kind="lognormal", mean_seconds={tokens}, sd_seconds={1.6 * tokens}}}',
    )


def staleness_arms(*, quick: bool) -> Iterator[ClaimArm]:
    """Claim 3: the staleness bound, held by admission (AReaL's way) and by dropping (DART's way)."""
    for workload, hours in {"dart": 10.0, "osworld": 3.0}.items():
        if quick and workload == "osworld":
            continue
        for bound in (0, 1, 4) if quick else BOUNDS:
            ahead = f"curation.admission.ahead_batches={bound + 1}.0"
            admitted = ("curation.admission.open_batches=none", ahead)
            dropped = (*NO_BOUNDS, f"curation.staleness.max_staleness={bound}", 'curation.batch.rule="ready"')
            for how, changes in {"by admission": admitted, "by dropping": dropped}.items():
                long = 4.0 if quick else hours
                yield ClaimArm(
                    "staleness", f"{workload}, {how}", str(bound), "areal-eta4", long, workload, changes, bound
                )


def sync_arms(*, quick: bool) -> Iterator[ClaimArm]:
    """Claim 4: weights to two workers at a time against all at once, by restart and in place, by reload time."""
    for workload, hours in {"dart": 6.0, "osworld": 2.0}.items():
        if quick and workload == "osworld":
            continue
        for mode in ("restart", "keep"):
            for scope, at_once in {"rolling": "2", "global": '"all"'}.items():
                for seconds in (10, 300) if quick else RELOADS:
                    changes = (
                        f'rollout.sync.mode="{mode}"',
                        f"rollout.sync.workers_at_a_time={at_once}",
                        f"cluster.engine.reload_seconds={seconds}.0",
                        f"cluster.engine.transfer_seconds={seconds}.0",
                    )
                    series = f"{workload}, {scope} {mode}"
                    long = 3.0 if quick else hours
                    yield ClaimArm(
                        "sync", series, f"{seconds} s", "dart-measured", long, workload, changes, float(seconds)
                    )


FAST = (
    "cluster.learner.fixed_seconds=0.0",
    "cluster.learner.kilotoken_seconds=0.0008",
    "curation.staleness.max_staleness=none",
    'rollout.sync.mode="keep"',
    "rollout.sync.workers_at_a_time=1",
    "cluster.engine.transfer_seconds=1.0",
    *ALL_TRAINED,
)


def desktops_arms(*, quick: bool) -> Iterator[ClaimArm]:
    """Claim 5: desktops per rollout GPU, on DART's cluster, and where neither trainer nor sync limit it."""
    hours = 2.0 if quick else 3.0
    for series, more in {"DART": (), "trainer and sync free": FAST}.items():
        for per_gpu in (5, 10, 20) if quick else DESKTOPS_PER_GPU:
            size = (f"rollout.num_envs={4 * per_gpu}", f"cluster.hosts.count={max(1, 4 * per_gpu // 10)}")
            yield ClaimArm(
                "desktops", series, str(per_gpu), "dart-measured", hours, changes=(*size, *more), value=per_gpu
            )


ARMS: Mapping[str, Callable[..., Iterator[ClaimArm]]] = {
    "table": table_arms,
    "interrupt": interrupt_arms,
    "staleness": staleness_arms,
    "sync": sync_arms,
    "desktops": desktops_arms,
}
"""The arms of each claim."""

MOST = 1_000
"""Desktops on a GPU beyond which no knee is looked for."""


def knee(prepared: PreparedRun) -> dict[str, Any]:
    """Return the fewest desktops on one GPU that can ask for more turns than it can answer.

    Desktops of which each has an engine to itself (``desktop_bound``) against an engine that is always full and
    never changes weights (``least_seconds``): waiting rounds the corner off, on both sides of the knee.
    """
    config, turns = prepared.config, mean_turns(prepared)
    each = desktop_bound(prepared, turns) / config.rollout.num_envs
    loads = {"cold": turn_load(prepared, turns, warm=False), "warm": turn_load(prepared, turns, warm=True)}
    knees = {
        name: next((n for n in range(1, MOST) if n * each >= 60.0 / least_seconds(prepared.gpu, load, n)), None)
        for name, load in loads.items()
    }
    return {
        "turns_per_minute_of_a_desktop": each,
        "no_prefix_cached": knees["cold"],
        "all_prefixes_cached": knees["warm"],
        "busy_seconds_of_a_turn_alone": least_seconds(prepared.gpu, loads["cold"], 1),
    }


def mean_turns(prepared: PreparedRun) -> float:
    """Return the mean length of the surrogate's trajectories, as if none were cut off, turns."""
    surrogate = prepared.config.surrogate
    success = surrogate.mean_success if surrogate.mean_success is not None else 0.559
    return success * surrogate.success_turns_mean + (1.0 - success) * surrogate.failure_turns_mean


def measure(options: Options) -> Figures:
    """Run the arms of every claim, and judge the claims by them."""
    arms = [arm for of_claim in ARMS.values() for arm in of_claim(quick=options.quick)]
    wanted = [ArmRun(f"{arm.series}, {arm.name}", seed, (arm, seed)) for arm in arms for seed in range(options.seeds)]
    made = options.sweep(run_arm, wanted)
    runs = {arm: made[n * options.seeds : (n + 1) * options.seeds] for n, arm in enumerate(arms)}
    found: Figures = {claim: [of_arm(arm, runs[arm]) for arm in arms if arm.claim == claim] for claim in ARMS}
    found["knee"] = knee(prepare(next(arm for arm in arms if arm.claim == "desktops").config(0)))
    return {
        "claims": found,
        "gpu_definitions": gpu_definitions(found["table"]),
        "verdicts": verdicts(found),
        "config": {"quick": options.quick},
    }


STUDY = Experiment(name="claims", about=str(__doc__), measure=measure, tables=TABLES, pictures=PICTURES)

if __name__ == "__main__":
    STUDY.run()
