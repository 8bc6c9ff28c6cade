"""Domain hash of every simulated preset: equal as long as a change of the code changes no behavior.

python -m experiments.domain_hashes             every preset, 4 simulated hours: one minute on two cores
python -m experiments.domain_hashes --record    keep the hashes, after a change of behavior that was meant
python -m experiments.domain_hashes --events 1  print the event hashes of one simulated hour; CI compares the compiled
                                                form with the source
"""

from __future__ import annotations

import argparse
import platform
import sys
from functools import partial
from importlib.metadata import version
from typing import Any

from rich.console import Console

from dartsim.config import load, presets
from dartsim.core.errors import ConfigError
from dartsim.lab.sweep import ArmRun, sweep
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared
from experiments.arms import Cluster
from experiments.study import RECORDED, recorded, write_json

FILE = RECORDED / "domain_hashes.json"
HOURS = 4.0
FEWER_HOURS = 1.0
"""For every run of the tests."""
SEED = 7
FAULTED = ("coupled", "dart", "dartsim", "prime-rl")
"""Presets that are also run under each of these profiles of faults."""
PROFILES = ("osworld", "hostile")


def simulated_presets() -> list[str]:
    """Return the presets of a modeled cluster and a surrogate policy: those that need nothing else."""
    found = []
    for name in presets():
        try:
            config = load(name)
        except ConfigError:
            continue  # needs to know its machines first
        if config.backend.virtual and config.policy.kind == "surrogate":
            found.append(name)
    return found


def runs() -> list[str]:
    """Return the runs by name: a preset, or a preset and a profile of faults after a plus sign."""
    return [*simulated_presets(), *(f"{preset}+{profile}" for preset in FAULTED for profile in PROFILES)]


def run_hashes(run: str, hours: float = HOURS) -> dict[str, Any]:
    """Simulate one run and return its hashes and turn rate."""
    preset, _, profile = run.partition("+")
    changes = (f"cluster.faults.profile={profile}",) if profile else ()
    result = run_prepared(prepare(Cluster(preset, hours, SEED, changes).config))
    return {
        "domain_hash": result.domain_hash,
        "event_hash": result.event_hash,
        "generated_turns_per_minute": round(result.figures["generated_turns_per_minute"], 3),
    }


def both_hashes(run: str) -> dict[str, Any]:
    """Return what is recorded of a run: its hashes, and that of fewer hours."""
    return {**run_hashes(run), "fewer_hours": run_hashes(run, FEWER_HOURS)["domain_hash"]}


def same_versions(before: dict[str, Any]) -> bool:
    """Return whether the recorded hashes can be compared: another numpy may draw other numbers."""
    return bool(before["versions"] == versions())


def versions() -> dict[str, str]:
    """Return the versions that hashes depend on: Python's minor version and numpy's."""
    return {"python": ".".join(platform.python_version_tuple()[:2]), "numpy": version("numpy")}


def main() -> None:
    """Run all presets; compare with the recorded hashes, or record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="keep the hashes instead of comparing them")
    parser.add_argument("--events", metavar="HOURS", type=float, help="print event hashes instead")
    options = parser.parse_args()
    names = runs()
    measure = both_hashes if options.record else partial(run_hashes, hours=options.events or HOURS)
    hashes = sweep(measure, [ArmRun(name, SEED, name) for name in names], console=Console(stderr=True))
    after = dict(zip(names, hashes, strict=True))
    if options.events:
        print(*(f"{name} {after[name]['event_hash']}" for name in names), sep="\n")
        return
    if options.record:
        write_json(FILE, {"versions": versions(), "hours": HOURS, "seed": SEED, "runs": after})
        return
    differ = 0
    for name, before in ((name, recorded("domain_hashes")["runs"].get(name, {})) for name in names):
        equal, same_events = (before.get(kind) == after[name][kind] for kind in ("domain_hash", "event_hash"))
        differ += not equal
        print(f"{name}: {'equal' if equal else 'DIFFERS'}{'' if same_events else ', other events'}")
    sys.exit(differ > 0)


if __name__ == "__main__":
    main()
