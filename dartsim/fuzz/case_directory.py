"""The directory of a replayed case: that of a run, with the case in ``summary.json`` and ``events.jsonl`` beside it.

``events.jsonl`` has the calls and events at the ports, one per line. The same token writes the same bytes.
"""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

from dartsim.config import to_toml
from dartsim.fuzz.runner import CaseResult
from dartsim.fuzz.space import config_of
from dartsim.observe.figures import summary
from dartsim.observe.recording import SEGMENTS, SegmentLog
from dartsim.observe.rundir import write_run, write_text
from dartsim.run.execute import meta
from dartsim.run.results import RunResult


def write_case_directory(path: Path, result: CaseResult) -> Path:
    """Write the result of ``run_case(case, keep=True)`` to a directory, and return it."""
    case, recorder = result.case, result.recorder
    assert recorder is not None, "the case was not run with keep=True"
    recorder.close()
    config = config_of(case)
    run = RunResult(
        recorder=recorder,
        figures=summary(recorder, warmup_share=0.0),
        bias={},
        interrupted=result.failed,
        event_hash=result.event_hash,
        num_events=result.num_events,
        alarm=None,
    )
    facts = {
        **meta(config, run),
        "token": case.token(),
        "case_seed": case.seed,
        "case_preset": case.preset,
        "choices": dict(case.choices),
        "faults": [fault.model_dump(exclude={"times"}) for fault in case.faults],
        "profile": case.profile,
        "failure": result.text or None,
        "rule": result.rule,
        "virtual_seconds": result.seconds,
        "injected": dict(sorted(result.injected.items())),
    }
    write_run(path, recorder, config_toml=to_toml(config), summary=run.figures, meta=facts)
    # A log writes what is kept when its run starts; this one has ended.
    SegmentLog(path / SEGMENTS, spacing_seconds=inf).run_started(recorder)
    lines = (
        json.dumps({"time": round(when, 6), "event": event, **more}, separators=(",", ":"), allow_nan=False)
        for when, event, more in result.log
    )
    write_text(path / "events.jsonl", "".join(line + "\n" for line in lines))
    return path
