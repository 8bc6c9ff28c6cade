"""Domain hash of every simulated preset: equal as long as a change of the code changes no behavior.

python -m experiments.domain_hashes             every preset, 4 simulated hours: one minute on two cores
python -m experiments.domain_hashes --record    keep the hashes, after a change of behavior that was meant
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from dartsim.config import load
from dartsim.lab.sweep import ArmRun, sweep
from dartsim.observe.rundir import json_text
from dartsim.run.prepare import prepare
from dartsim.run.simulation import run_simulation
from experiments.faults import simulated_presets

RECORDED = Path(__file__).parent / "recorded" / "domain_hashes.json"
HOURS = 4.0
SEED = 7
FAULTED = ("coupled", "dart", "dartsim", "prime-rl")
"""Presets that are also run under each of these profiles of faults."""
PROFILES = ("osworld", "hostile")


def runs() -> list[str]:
    """Return the runs by name: a preset, or a preset and a profile of faults after a plus sign."""
    return [*simulated_presets(), *(f"{preset}+{profile}" for preset in FAULTED for profile in PROFILES)]


def run_hashes(run: str) -> dict[str, Any]:
    """Simulate one run and return its hashes and turn rate."""
    preset, _, profile = run.partition("+")
    config = load(
        preset_name=preset,
        overrides=[
            f"run.hours={HOURS}",
            f"run.seed={SEED}",
            "recorder.max_segments=0",
            'curation.store="memory"',
            *([f"cluster.faults.profile={profile}"] if profile else []),
        ],
    )
    result = run_simulation(prepare(config))
    return {
        "domain_hash": result.domain_hash,
        "event_hash": result.event_hash,
        "generated_turns_per_minute": round(result.figures["generated_turns_per_minute"], 3),
    }


def recorded() -> dict[str, Any]:
    """Return the recorded file."""
    found: dict[str, Any] = json.loads(RECORDED.read_text())
    return found


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
    record = parser.parse_args().record
    names = runs()
    hashes = sweep(run_hashes, [ArmRun(name, SEED, name) for name in names], console=Console(stderr=True))
    found = dict(zip(names, hashes, strict=True))
    if record:
        RECORDED.write_text(json_text({"versions": versions(), "hours": HOURS, "seed": SEED, "runs": found}))
        return
    before = recorded()["runs"]
    for name in names:
        what = "equal" if before.get(name, {}).get("domain_hash") == found[name]["domain_hash"] else "DIFFERS"
        events = "" if before.get(name, {}).get("event_hash") == found[name]["event_hash"] else ", other events"
        print(f"{name}: {what}{events}")
    sys.exit(any(before.get(name, {}).get("domain_hash") != found[name]["domain_hash"] for name in names))


if __name__ == "__main__":
    main()
