"""What faults cost: throughput kept, attempts masked and time to recover, by preset, under each profile of faults.

python -m experiments.faults            every preset of a modeled cluster, one seed, 8 hours: six minutes on two cores
python -m experiments.faults --quick    the same keys for two presets, in half a minute
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean

from dartsim.config import load, presets
from dartsim.core.errors import ConfigError
from dartsim.lab.sweep import ArmRun
from dartsim.run.prepare import prepare
from dartsim.run.simulation import run_simulation
from dartsim.sim.faults import KINDS, PROFILES, as_data
from experiments.charts import Panel, Series, draw
from experiments.clusters import Cluster
from experiments.study import Experiment, Figures, Options, Rows, StudyPicture, rows_of

ALL = ("none", *PROFILES)
HEALED = "healed"
"""Hostile for the first half, and nothing after it: how long until there are updates again."""

NOT_FAULTS = ("run ended", "withdrawn")
"""Causes of masked attempts that are no faults."""


def faulty(preset: str, faults: str, hours: float, seed: int = 0) -> Cluster:
    """Return a preset's cluster under a profile of faults."""
    changes = [f"cluster.faults.profile={'hostile' if faults == HEALED else faults}"]
    if faults == HEALED:
        changes.append(f"cluster.faults.heal_after_hours={hours / 2}")
    return Cluster(preset, hours, seed, tuple(changes))


def simulated_presets() -> list[str]:
    """Return the presets of a modeled cluster and a surrogate policy: those that need nothing else."""
    found = []
    for name in presets():
        try:
            config = load(preset_name=name)
        except ConfigError:
            continue  # needs to know its machines first
        if config.backend.virtual and config.policy.kind == "surrogate":
            found.append(name)
    return found


def run_one(run: Cluster) -> Figures:
    """Make one run, and return what is kept of it."""
    result = run_simulation(prepare(run.config))
    figures, updates = result.figures, [record.time for record in result.recorder.updates]
    masked = sum(n for cause, n in figures["causes"].items() if cause not in NOT_FAULTS)
    healed = run.hours * 1800.0
    after = [time - healed for time in updates if time > healed]
    return {
        "trained_turns_per_minute": figures["trained_turns_per_minute"],
        "generated_turns_per_minute": figures["generated_turns_per_minute"],
        "masked_share": masked / figures["attempts"],
        "updates": len(updates),
        "updates_after_half": len(after),
        "first_update_after_half_minutes": after[0] / 60.0 if after else None,
        "injections": {name: n for name, n in figures["faults"].items() if name in KINDS},
        "event_hash": result.event_hash,
    }


def measure(options: Options) -> Figures:
    """Run every preset under every profile."""
    names = ["dart", "coupled"] if options.quick else simulated_presets()
    hours = 3.0 if options.quick else 8.0
    arms = [(preset, faults) for preset in names for faults in (*ALL, HEALED)]
    runs = [ArmRun(", ".join(arm), seed, faulty(*arm, hours, seed)) for arm in arms for seed in range(options.seeds)]
    done = options.sweep(run_one, runs)
    by_arm = {arm: done[n * options.seeds : (n + 1) * options.seeds] for n, arm in enumerate(arms)}
    return {
        "hours": hours,
        "presets": {name: summary({faults: by_arm[name, faults] for faults in (*ALL, HEALED)}) for name in names},
        "injections": injections(by_arm),
        "kinds": as_data(),
        "config": faulty(names[0], "hostile", hours).config.model_dump(mode="json"),
    }


def summary(runs: dict[str, list[Figures]]) -> Figures:
    """Return the figures of one preset: means over seeds, and ratios to the runs without faults."""

    def average(faults: str, name: str) -> float:
        return mean(float(run[name]) for run in runs[faults])

    base = average("none", "trained_turns_per_minute")
    recoveries = [run["first_update_after_half_minutes"] for run in runs[HEALED]]
    return {
        **{
            faults: {
                "trained_turns_per_minute": average(faults, "trained_turns_per_minute"),
                "throughput_kept": average(faults, "trained_turns_per_minute") / base if base else None,
                "masked_share": average(faults, "masked_share"),
                "updates": average(faults, "updates"),
                "event_hashes": [run["event_hash"] for run in runs[faults]],
            }
            for faults in ALL
        },
        HEALED: {
            "recovery_minutes_max": None if None in recoveries else max(recoveries),
            "updates_kept": average(HEALED, "updates_after_half") / max(1.0, average("none", "updates_after_half")),
            "event_hashes": [run["event_hash"] for run in runs[HEALED]],
        },
    }


def injections(runs: Mapping[tuple[str, str], Sequence[Figures]]) -> Figures:
    """Return how often each kind was injected in all runs of a profile together."""
    found = {
        profile: [run["injections"] for (_, faults), own in runs.items() if faults == profile for run in own]
        for profile in PROFILES
    }
    return {profile: {kind: sum(run.get(kind, 0) for run in own) for kind in KINDS} for profile, own in found.items()}


SHOWN = ("coupled", "task-wise", "dart", "areal-eta4", "verl-async", "slime-one-step-off", "trl", "dartsim")
"""The presets of the picture."""


def costs_picture(recorded: Figures) -> str:
    """Bars: throughput that some presets keep under each profile, and minutes until they recover."""
    rows = [(name, recorded["presets"][name]) for name in SHOWN if name in recorded["presets"]]
    ticks, xs = [(n, name) for n, (name, _) in enumerate(rows)], range(len(rows))
    kept = [
        Series(profile, xs, [100.0 * row[profile]["throughput_kept"] for _, row in rows], [None] * len(rows), color)
        for color, profile in enumerate(PROFILES)
    ]
    minutes = [row[HEALED]["recovery_minutes_max"] or 0.0 for _, row in rows]
    recovery = Series("after hostile faults end", xs, minutes, [None] * len(rows), len(PROFILES))
    return draw(
        [
            Panel("trained turns kept under faults, %", "", kept, ticks, bars=True),
            Panel("minutes until the next update", "", [recovery], ticks, bars=True),
        ],
        tilt=True,
    )


def cost_rows(recorded: Figures) -> Rows:
    """Return what faults cost each preset."""
    columns = {
        "preset": "`{preset}`",
        "trained turns/min": "{none[trained_turns_per_minute]:.1f}",
        **{f"kept, {profile}": f"{{{profile}[throughput_kept]:.0%}}" for profile in PROFILES},
        **{f"masked, {profile}": f"{{{profile}[masked_share]:.1%}}" for profile in PROFILES},
        "recovery, min": f"{{{HEALED}[recovery_minutes_max]:.0f}}",
    }
    return rows_of(columns, ({"preset": name, **row} for name, row in recorded["presets"].items()))


def provenance(recorded: Figures) -> str:
    """Return a sentence that says what was run."""
    total = {profile: sum(counts.values()) for profile, counts in recorded["injections"].items()}
    injected = {profile: sum(n > 0 for n in counts.values()) for profile, counts in recorded["injections"].items()}
    told = ", ".join(f"{total[profile]:,} of {injected[profile]} kinds ({profile})" for profile in PROFILES)
    seeds, hours, num_presets = len(recorded["seeds"]), recorded["hours"], len(recorded["presets"])
    commit = recorded["commit"]["id"][:10] + (" and changes after it" if recorded["commit"]["dirty"] else "")
    return (
        f"`python -m experiments.faults`: {num_presets} presets, seeds: {seeds}, {hours:g} "
        f"simulated hours each; faults injected in all runs: {told}. Commit {commit}.\n"
    )


STUDY = Experiment(
    name="faults",
    about=str(__doc__),
    measure=measure,
    seeds=1,
    tables={
        "fault-costs": cost_rows,
        "fault-provenance": provenance,
    },
    pictures={
        "fault-costs": StudyPicture("Throughput kept under faults, and time to recover, by preset", costs_picture)
    },
)

if __name__ == "__main__":
    STUDY.run()
