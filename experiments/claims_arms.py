"""What is run for each claim: the arms, with their changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from experiments.claims_runs import Arm

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


def table_arms(*, quick: bool) -> Iterator[Arm]:
    """Claim 1: the ladder from the coupled baseline to DART, and DART with one part left out."""
    hours = 3.0 if quick else 12.0
    changes: tuple[str, ...] = ()
    for name, more in LADDER.items():
        changes += more
        yield Arm("table", "ladder", name, "coupled", hours, changes=changes)
    for name, less in LEFT_OUT.items():
        yield Arm("table", "left out", name, "dart-measured", hours, changes=less)


def interrupt_arms(*, quick: bool) -> Iterator[Arm]:
    """Claim 2: what a sync does to running requests, by time between syncs and length of replies."""
    for series, (workload, tokens, hours) in REPLIES.items():
        if quick and tokens == 2500.0:
            continue
        size = () if tokens is None else _replies(tokens)
        for seconds in INTERVALS[1::2] if quick else INTERVALS:
            for name, mode in MODES.items():
                every = (f"cluster.learner.fixed_seconds={seconds}.0", "cluster.learner.turn_seconds=0.0")
                one = ("curation.batch.min_groups=1", "curation.batch.max_groups=1")
                changes = (*ALL_TRAINED, *NO_BOUNDS, *EVENLY, *one, *every, *size, *mode)
                long = min(hours, 1.0) if quick else hours
                yield Arm("interrupt", series, name, "areal-eta4", long, workload, changes, float(seconds))


def _replies(tokens: float) -> tuple[str, ...]:
    """Return changes for one engine with 64 replies of that mean length, as wide as the workload's."""
    return (
        "rollout.num_envs=64",
        "rollout.num_workers=1",
        f'cluster.engine.reply_tokens={{kind="lognormal", mean_seconds={tokens}, sd_seconds={1.6 * tokens}}}',
    )


def staleness_arms(*, quick: bool) -> Iterator[Arm]:
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
                yield Arm("staleness", f"{workload}, {how}", str(bound), "areal-eta4", long, workload, changes, bound)


def sync_arms(*, quick: bool) -> Iterator[Arm]:
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
                    yield Arm("sync", series, f"{seconds} s", "dart-measured", long, workload, changes, float(seconds))


FAST = (
    "cluster.learner.fixed_seconds=0.0",
    "cluster.learner.turn_seconds=0.01",
    "curation.staleness.max_staleness=none",
    'rollout.sync.mode="keep"',
    "rollout.sync.workers_at_a_time=1",
    "cluster.engine.transfer_seconds=1.0",
    *ALL_TRAINED,
)


def desktops_arms(*, quick: bool) -> Iterator[Arm]:
    """Claim 5: desktops per rollout GPU, on DART's cluster, and where neither trainer nor sync limit it."""
    hours = 2.0 if quick else 3.0
    for series, more in {"DART": (), "trainer and sync free": FAST}.items():
        for per_gpu in (5, 10, 20) if quick else DESKTOPS_PER_GPU:
            size = (f"rollout.num_envs={4 * per_gpu}", f"cluster.hosts.count={max(1, 4 * per_gpu // 10)}")
            yield Arm("desktops", series, str(per_gpu), "dart-measured", hours, changes=(*size, *more), value=per_gpu)


ARMS: Mapping[str, Callable[..., Iterator[Arm]]] = {
    "table": table_arms,
    "interrupt": interrupt_arms,
    "staleness": staleness_arms,
    "sync": sync_arms,
    "desktops": desktops_arms,
}
"""The arms of each claim."""
