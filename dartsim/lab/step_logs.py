"""Metrics by step from the logs of a trainer: JSONL, console, TensorBoard files, and vLLM's Prometheus text."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dartsim.core.errors import ConfigError

STEP_KEYS = ("step", "_step", "global_step", "trainer/global_step", "rollout/step")
"""Names of a step's number in a line of JSON."""
TIME_KEYS = ("time", "_timestamp")
"""Names of the time at which a line was written, seconds."""
NUMBER = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf)"
Values = dict[str, float]
Buckets = dict[str, dict[float, float]]
"""Cumulative counts of Prometheus histograms by name and upper bound."""


@dataclass(slots=True)
class StepLog:
    """What the files of one run say.

    Attributes:
        values: Metrics by step.
        times: Time at which a step was logged, seconds, where the files have it.
        buckets: Histograms of vLLM's Prometheus text, of all its engines together.
    """

    values: dict[int, Values] = field(default_factory=dict)
    times: dict[int, float] = field(default_factory=dict)
    buckets: Buckets = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Entry:
    """Metrics logged at once: ``where`` is a line or record of the file."""

    where: str
    step: int
    time: float | None
    values: Mapping[str, float]


def read_logs(files: Sequence[Path], names: Mapping[str, Any]) -> StepLog:
    """Read the files of one run; ``names`` is its framework's part of ``log_names.toml``.

    Raises:
        ConfigError: If a file cannot be read, is cut, or contradicts itself or another one.
    """
    log = StepLog()
    parts = [part for file in files for part in (sorted(file.rglob("*tfevents*")) if file.is_dir() else [file])]
    if not parts:
        raise ConfigError(f"{files[0]} has no TensorBoard files (*tfevents*); name the log's files")
    for file in parts:
        newest: dict[str, int] = {}
        for entry in _entries(file, names, log.buckets):
            other = str(names.get("other_process", ""))
            dropped = "time/" if other and other in entry.values else None
            for name, value in entry.values.items():
                if dropped is None or not name.startswith(dropped):
                    _check(f"{file}, {entry.where}", entry.step, name, value, newest, log)
                    newest[name] = entry.step
                    log.values.setdefault(entry.step, {})[name] = value
            if entry.time is not None:
                log.times[entry.step] = entry.time
    return log


def _check(place: str, step: int, name: str, value: float, newest: Mapping[str, int], log: StepLog) -> None:
    before = newest.get(name)
    if before is not None and step < before:
        raise ConfigError(
            f"{place}: steps go back from {before} to {step}: two runs in one log, or one that was resumed; "
            "keep one part"
        )
    known = log.values.get(step, {}).get(name)
    if known is not None and known != value and not math.isnan(known):
        raise ConfigError(
            f"{place}: {name} of step {step} is {value:g}, and was {known:g}: two runs, or one that was "
            "resumed; keep one"
        )


def _entries(file: Path, names: Mapping[str, Any], buckets: Buckets) -> Iterator[_Entry]:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    if "tfevents" in file.name:
        yield from _tensorboard(file, data)
        return
    text = data.decode("utf-8", errors="replace")
    start = text.lstrip()[:1]
    if start == "#" and "# TYPE" in text:
        _add_buckets(text, buckets)
    elif start == "{":
        yield from _json(file, text)
    elif "step" in names:
        yield from _console(file, text, names)
    else:
        raise ConfigError(
            f"{file} is no JSON; the console log of this framework has no metrics: name its metrics.jsonl"
        )


def _json(file: Path, text: str) -> Iterator[_Entry]:
    """Yield the lines of JSONL, or of the history in a Hugging Face trainer's state."""
    try:
        whole = json.loads(text)
    except ValueError:
        whole = None
    if isinstance(whole, dict) and "log_history" in whole:
        lines = [(f"entry {number}", line) for number, line in enumerate(whole["log_history"], 1)]
    else:
        lines = []
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                try:
                    lines.append((f"line {number}", json.loads(line)))
                except ValueError:
                    raise ConfigError(f"{file}, line {number} is no JSON: the file is cut; remove that line") from None
    for where, line in lines:
        line = line | line["data"] if isinstance(line.get("data"), dict) else line
        numbers = {name: float(value) for name, value in line.items() if isinstance(value, int | float)}
        step = next((numbers[key] for key in STEP_KEYS if key in numbers), None)
        if step is None:
            raise ConfigError(f"{file}, {where} has no number of a step ({', '.join(STEP_KEYS)}): not a log of metrics")
        time = next((numbers[key] for key in TIME_KEYS if key in numbers), None)
        metrics = {name: value for name, value in numbers.items() if name not in (*STEP_KEYS, *TIME_KEYS)}
        yield _Entry(where, int(step), time, metrics)


def _console(file: Path, text: str, names: Mapping[str, Any]) -> Iterator[_Entry]:
    """Yield the metrics that follow each number of a step, up to the next."""
    if text and not text.endswith("\n"):
        raise ConfigError(f"{file}: its last line has no end: the file is cut; remove that line")
    pair = names["pair"].replace("NUMBER", NUMBER)
    marks = list(re.finditer(names["step"], text, re.MULTILINE))
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    for mark, end in zip(marks, ends, strict=False):
        part = text[mark.end() : end]
        values = {name: float(value) for name, value in re.findall(pair, part)}
        yield _Entry(f"line {text.count(chr(10), 0, mark.start()) + 1}", int(mark[1]), None, values)


def _tensorboard(file: Path, data: bytes) -> Iterator[_Entry]:
    """Yield the scalars of each record: its length and a checksum, then the event and its checksum."""
    from tensorboardX.proto.event_pb2 import Event

    place = number = 0
    while place < len(data):
        size = struct.unpack_from("<Q", data, place)[0] if place + 12 <= len(data) else len(data)
        end = place + 16 + size
        if end > len(data):
            raise ConfigError(f"{file}: its last record (after {number}) is incomplete: the file is cut")
        event = Event.FromString(data[place + 12 : end - 4])
        place, number = end, number + 1
        values = {each.tag: each.simple_value for each in event.summary.value if each.HasField("simple_value")}
        if values:
            yield _Entry(f"record {number}", event.step, event.wall_time, values)


def _add_buckets(text: str, buckets: Buckets) -> None:
    """Add the histograms of one server's text to those of others; labels other than the bound are summed over."""
    for name, labels, count in re.findall(r"^([\w:]+)_bucket\{([^}]*)\} ([\d.eE+]+)", text, re.MULTILINE):
        bound = re.search(r'le="([^"]+)"', labels)
        if bound is not None:
            counts = buckets.setdefault(name, {})
            counts[float(bound[1])] = counts.get(float(bound[1]), 0.0) + float(count)
