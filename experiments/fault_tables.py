"""The tables of ``docs/faults.md``: the kinds of faults from their code, and what was recorded of their cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dartsim.sim.faults import KINDS, PROFILES, FaultKind
from experiments.faults import HEALED
from experiments.markdown import Rows, from_record, table, table_from_record


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


TABLES: Mapping[str, Callable[[], str]] = {
    "fault-kinds-osworld": lambda: table(*kinds_rows(osworld=True)),
    "fault-kinds-cluster": lambda: table(*kinds_rows(osworld=False)),
    "fault-costs": table_from_record("faults", cost_rows),
    "fault-provenance": from_record("faults", provenance),
}
"""The tables, by their names on the page."""
