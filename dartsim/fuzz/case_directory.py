"""The directory of a replayed case: configuration, events, idle causes, and a trace.

    case.json       the token and its case, the rule, the event hash
    config.toml     the resolved configuration
    events.jsonl    the calls and events at the ports, one per line
    idle.json       why desktops, workers and trainer were idle
    trace.json.gz   for ui.perfetto.dev

The same token writes the same bytes.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from dartsim.config import to_toml
from dartsim.fuzz.runner import CaseResult
from dartsim.fuzz.space import config_of
from dartsim.observe.idle import attribute
from dartsim.observe.perfetto import perfetto
from dartsim.observe.recorder import Recorder
from dartsim.observe.rundir import write_bytes, write_text
from dartsim.observe.timeline import recorded_window


def write_case_directory(path: Path, result: CaseResult) -> Path:
    """Write the result of ``run_case(case, keep=True)`` to a directory, and return it."""
    path.mkdir(parents=True, exist_ok=True)
    case = result.case
    facts = {
        "token": case.token(),
        "preset": case.preset,
        "seed": case.seed,
        "choices": dict(case.choices),
        "faults": [fault.model_dump(exclude={"times"}) for fault in case.faults],
        "profile": case.profile,
        "rule": result.rule,
        "text": result.text,
        "event_hash": result.event_hash,
        "virtual_seconds": result.seconds,
        "num_events": result.num_events,
        "injected": dict(sorted(result.injected.items())),
    }
    write_text(path / "case.json", json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
    write_text(path / "config.toml", to_toml(config_of(case)))
    lines = [_compact({"time": round(when, 6), "event": event, **more}) for when, event, more in result.log]
    write_text(path / "events.jsonl", "".join(line + "\n" for line in lines))
    if result.recorder is not None:
        _write_trace(path, result.recorder, facts)
    return path


def _write_trace(path: Path, recorder: Recorder, facts: dict[str, Any]) -> None:
    window = recorded_window(recorder)
    if window is None:
        return
    write_text(path / "idle.json", _compact(attribute(window, num_bins=12)) + "\n")
    shown = perfetto(recorder, meta={name: facts[name] for name in ("token", "rule", "text", "event_hash")})
    write_bytes(path / "trace.json.gz", gzip.compress(_compact(shown).encode(), mtime=0))


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
