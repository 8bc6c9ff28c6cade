"""The directory of a case: that of a run, with the case in ``summary.json`` and ``events.jsonl`` beside it.

``events.jsonl`` has the calls and events at the ports, one per line. The same case writes the same bytes.
"""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

from dartsim.config import to_toml
from dartsim.core.errors import ConfigError
from dartsim.fuzz.cases import Case, case_of_json
from dartsim.fuzz.runner import CaseResult
from dartsim.fuzz.space import config_of
from dartsim.observe.figures import summary
from dartsim.observe.recording import SEGMENTS, SegmentLog
from dartsim.observe.rundir import read_run, reading, write_run, write_text
from dartsim.run.execute import meta
from dartsim.run.results import RunResult
from dartsim.run.watch import Watch


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
        "case": case.as_json(),
        "failure": result.text or None,
        "rule": result.rule,
        "virtual_seconds": result.seconds,
        "injected": dict(sorted(result.injected.items())),
    }
    write_run(path, config_toml=to_toml(config), summary=run.figures, meta=facts)
    # These write what is kept when their run starts; this one has ended.
    SegmentLog(path / SEGMENTS, spacing_seconds=inf).run_started(recorder)
    with Watch(config, path) as watch:
        watch.run_started(recorder)
        watch.failure = result.text or None
    lines = (
        json.dumps({"time": round(when, 6), "event": event, **more}, separators=(",", ":"), allow_nan=False)
        for when, event, more in result.log
    )
    write_text(path / "events.jsonl", "".join(line + "\n" for line in lines))
    return path


def read_case(path: Path) -> Case:
    """Return the case of a directory.

    Raises:
        ConfigError: If it is not the directory of a case.
    """
    data = read_run(path).summary.get("case")
    if data is None:
        raise ConfigError(f"{path} is a run; give a folder that `dartsim fuzz` wrote")
    with reading(path):
        return case_of_json(data)
