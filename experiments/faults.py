"""What faults cost: throughput kept, attempts masked and time to recover, by preset, under each profile of faults.

python -m experiments.faults            every preset of a modelled cluster, one seed, 8 hours: six minutes on two cores
python -m experiments.faults --quick    the same keys for two presets, in half a minute
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean
from typing import Any

from dartsim.config import Config, load, presets
from dartsim.core.errors import ConfigError
from dartsim.lab.sweep import ArmRun
from dartsim.run.prepare import prepare
from dartsim.run.simulation import run_simulation
from dartsim.sim.faults import KINDS, PROFILES, FaultKind, as_data
from experiments.study import Experiment, Figures, Options, Rows

ALL = ("none", *PROFILES)
HEALED = "healed"
"""Hostile for the first half, and nothing after it: how long until there are updates again."""

NOT_FAULTS = ("run ended", "withdrawn")
"""Causes of masked attempts that nothing went wrong with."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run: a preset under a profile of faults."""

    preset: str
    faults: str
    hours: float
    seed: int

    @property
    def config(self) -> Config:
        """The resolved configuration, without timelines and without a database."""
        own = [f"run.hours={self.hours}", f"run.seed={self.seed}", "recorder.max_segments=0", 'curation.store="memory"']
        if self.faults == HEALED:
            own += ["cluster.faults.profile=hostile", f"cluster.faults.heal_after_hours={self.hours / 2}"]
        else:
            own.append(f"cluster.faults.profile={self.faults}")
        return load(preset_name=self.preset, overrides=own)


def simulated_presets() -> list[str]:
    """Return the presets of a modelled cluster and a surrogate policy: those that need nothing else."""
    found = []
    for name in presets():
        try:
            config = load(preset_name=name)
        except ConfigError:
            continue  # one that wants to be told first where its machines are
        if config.backend.virtual and config.policy.kind == "surrogate":
            found.append(name)
    return found


def run_one(run: Run) -> Figures:
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
    runs = [
        Run(preset, faults, hours, seed)
        for preset in names
        for faults in (*ALL, HEALED)
        for seed in range(options.seeds)
    ]
    done = options.sweep(run_one, [ArmRun(f"{run.preset}, {run.faults}", run.seed, run) for run in runs])
    made = dict(zip(runs, done, strict=True))

    def of(preset: str, faults: str) -> list[Figures]:
        return [made[Run(preset, faults, hours, seed)] for seed in range(options.seeds)]

    return {
        "hours": hours,
        "presets": {preset: summary({faults: of(preset, faults) for faults in (*ALL, HEALED)}) for preset in names},
        "injections": injections(made),
        "kinds": as_data(),
        "config": Run(names[0], "hostile", hours, 0).config.model_dump(mode="json"),
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


def injections(made: dict[Run, Figures]) -> Figures:
    """Return how often each kind was injected in all runs of a profile together."""
    return {
        profile: {
            kind["name"]: sum(
                found["injections"].get(kind["name"], 0) for run, found in made.items() if run.faults == profile
            )
            for kind in as_data()
        }
        for profile in PROFILES
    }


def kinds_rows(*, osworld: bool) -> Rows:
    """Return the table of kinds: those of OSWorld's list, or all others."""
    head = ["kind", "what happens", "where", "counted as", *(f"{profile}, ‰" for profile in PROFILES), "of", "source"]
    if osworld:
        head.insert(0, "#")
    rows = [_row(kind, osworld=osworld) for kind in KINDS.values() if bool(kind.number) == osworld]
    return head, rows


def _row(kind: FaultKind, *, osworld: bool) -> list[str]:
    together = "" if kind.correlation == "independent" else f" ({kind.correlation})"
    cells = [f"`{kind.name}`", kind.description, f"{kind.place}{together}", f"`{kind.cause}`" if kind.cause else "–"]
    cells += [f"{1000.0 * kind.rates[profile]:g}" for profile in PROFILES]
    cells += [kind.unit, kind.source]
    return [str(kind.number), *cells] if osworld else cells


def cost_rows(recorded: dict[str, Any]) -> Rows:
    """Return what faults cost each preset."""
    head = ["preset", "trained turns/min"]
    head += [f"kept, {profile}" for profile in PROFILES]
    head += [f"masked, {profile}" for profile in PROFILES]
    head += ["recovery, min"]
    rows = []
    for preset, found in recorded["presets"].items():
        recovery = found[HEALED]["recovery_minutes_max"]
        rows.append(
            [
                f"`{preset}`",
                f"{found['none']['trained_turns_per_minute']:.1f}",
                *(_share(found[profile]["throughput_kept"], 0) for profile in PROFILES),
                *(_share(found[profile]["masked_share"], 1) for profile in PROFILES),
                "–" if recovery is None else f"{recovery:.0f}",
            ]
        )
    return head, rows


def _share(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}%}"


def provenance(recorded: dict[str, Any]) -> str:
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
        "fault-kinds-osworld": lambda _: kinds_rows(osworld=True),
        "fault-kinds-cluster": lambda _: kinds_rows(osworld=False),
        "fault-costs": cost_rows,
        "fault-provenance": provenance,
    },
)

if __name__ == "__main__":
    STUDY.run()
