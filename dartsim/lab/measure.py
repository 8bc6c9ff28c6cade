"""Turns the timings of a real run into a profile: settings of the modeled cluster that ``dartsim run`` loads.

Times include the run's own load, such as waiting for shared cores or for a container engine that starts few containers
at a time; this load is not modeled again. So a profile describes one configuration on one machine, and is too
optimistic for more desktops on the same machine.
"""

from __future__ import annotations

import csv
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.observe.timings import CUT, Entry
from dartsim.sim.fitting import FittedLine, fit_line, fit_memory, fit_quantiles

Tree = dict[str, Any]
LATENCIES = {
    "boot": "env/start",
    "setup": "env/reset",
    "step": "env/step",
    "evaluate": "env/evaluate",
    "teardown": "env/close",
}
"""Latencies of the desktop model, and the call that measures each."""

WORK = frozenset({*LATENCIES.values(), "worker/generate", "learner/update"})
"""Calls that happen only while the control plane runs."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A profile as a tree of settings, and the number of measured calls by kind."""

    settings: Tree
    counts: Mapping[str, int]


def measure(config: Config, entries: Sequence[Entry]) -> Measurement:
    """Derive a profile of the cluster from a run's configuration and timings.

    Raises:
        ConfigError: If no component was real, or a real one was never measured.
    """
    if config.backend.desktops == config.backend.workers == config.backend.learner == "sim":
        raise ConfigError("every component of this run was modeled: there is nothing to measure; see backend.desktops")
    # The control plane may have started late, after its engines.
    work = [entry for entry in entries if entry["what"] in WORK]
    times = [time for entry in work for time in (max(0.0, entry["at"] - entry["seconds"]), entry["at"])]
    first, last = min(times, default=0.0), max(times, default=0.0)
    table = TimingTable(entries, first + config.run.warmup_share * (last - first))
    settings: Tree = {}
    for part in (_desktops, _workers, _learner, _faults):
        settings = {**settings, **part(config, table)}
    return Measurement({"cluster": settings}, table.counts())


def profile_toml(measured: Measurement, about: Tree) -> str:
    """Return a profile and its origin as TOML, an overlay for ``dartsim.config.load``."""
    return tomli_w.dumps({"about": about, **measured.settings})


class TimingTable:
    """Timings by kind of call: those after the warm-up, or all if there are none after it."""

    def __init__(self, entries: Iterable[Entry], begin: float) -> None:
        by_what: dict[str, list[Entry]] = {}
        for entry in entries:
            if not entry.get("cancelled"):
                by_what.setdefault(entry["what"], []).append(entry)
        self._by_what = {
            what: [entry for entry in calls if entry["at"] >= begin] or calls for what, calls in by_what.items()
        }

    def of(self, what: str) -> list[Entry]:
        return [entry for entry in self._by_what.get(what, ()) if not entry.get("failed")]

    def some(self, what: str) -> list[Entry]:
        """Return the successful calls of a kind.

        Raises:
            ConfigError: If there are none.
        """
        calls = self.of(what)
        if not calls:
            raise ConfigError(f"no {what} was measured: the run was too short; repeat it with more --hours")
        return calls

    def seconds(self, what: str) -> list[float]:
        return [entry["seconds"] for entry in self.some(what)]

    def failed_share(self, what: str) -> float:
        calls = self._by_what.get(what, ())
        return sum(bool(entry.get("failed")) for entry in calls) / len(calls) if calls else 0.0

    def counts(self) -> dict[str, int]:
        """Return the number of successful calls by kind, without the event loop's entries."""
        return {what: len(self.of(what)) for what in sorted(self._by_what) if what not in ("loop/busy", CUT)}


def _desktops(config: Config, table: TimingTable) -> Tree:
    """Return the desktops' latencies, for hosts that add no delay."""
    if config.backend.desktops == "sim":
        return {}
    hosts = {"count": 1, "cores": 1024.0, "memory_gib": 1024.0, "concurrent_starts": config.rollout.num_desktops}
    inline = config.backend.desktops == "mock"
    latency: Tree = {"start": 0.0, "memory_gib": 0.0, "boot_cores": 0.0, "step_cores": 0.0}
    latency |= {"settle_seconds": 0.0, "evaluate_settle_seconds": 0.0}
    for name, what in LATENCIES.items():
        never = name == "teardown" and config.desktop.revert != "boot" and not table.of(what)
        latency[name] = 0.0 if inline or never else quantiles(table.seconds(what))
    if config.backend.desktop_backend.reverts(config):
        latency |= {"save": 0.0, "restore": 0.0} if inline else _reverts(table)
    if inline:  # the loop computes the desktops: its time is in engine.control_seconds, and between two attempts here
        latency["evaluate"] = _between_attempts(table)
    return {"hosts": hosts, "env": {"profile": "desktop-small", "latency": latency}}


def _reverts(table: TimingTable) -> Tree:
    """Return the latencies of saving a state, and of restoring one up to the first observation."""
    after = [entry["seconds"] for entry in table.of("env/resume")]
    shown = float(np.mean(after)) if after else 0.0
    restores = [seconds + shown for seconds in table.seconds("env/restore")]
    return {"save": quantiles(table.seconds("env/save")), "restore": quantiles(restores)}


def _workers(config: Config, table: TimingTable) -> Tree:
    """Return the engine's model."""
    if config.backend.workers == "sim":
        return {}
    inline = config.backend.desktops == "mock"
    engine: Tree = {"overhead_seconds": 0.0}
    if config.backend.workers == "local":
        engine |= {"model": "batch", **_batches(table, inline=inline)}
    else:
        engine |= {"model": "shared", **_replies(table)}
    # Times of a server's replies already include waiting for the loop.
    engine["control_seconds"] = _control_seconds(table) if inline and config.backend.workers == "local" else 0.0
    return {"engine": engine}


def _batches(table: TimingTable, *, inline: bool) -> Tree:
    """Return the batch times of workers in this process, without the event loop if that is modeled (``inline``)."""
    batches, puts = table.some("worker/batch"), table.some("worker/put")
    sizes = [float(entry["size"]) for entry in batches]
    seconds = [entry["seconds"] for entry in batches] if inline else seen_seconds(batches, puts, table)
    put_seconds = [entry["seconds"] + (0.0 if inline else entry["waited"]) for entry in puts]
    line = fit_line(sizes, seconds)
    return {**_law(line, batches, sizes, seconds), "reload_seconds": _rounded(float(np.mean(put_seconds)))}


def seen_seconds(batches: Sequence[Entry], puts: Sequence[Entry], table: TimingTable) -> list[float]:
    """Return how long each batch occupied its worker, seconds.

    From when it could start (its first request had arrived and the previous batch or load was done) to the mean arrival
    of its replies at the control plane. This includes the transport to and from the event loop, which takes as long as
    the batch for small models.
    """
    answered = answered_by(batches, table)
    taken: dict[int, float] = {}
    for number in {entry["worker"] for entry in batches}:
        ends = sorted(entry["at"] for entry in (*batches, *puts) if entry["worker"] == number)
        for batch in (entry for entry in batches if entry["worker"] == number):
            replies = answered.get(id(batch), ())
            begun = batch["at"] - batch["seconds"] - batch["waited"]
            ended = batch["at"]
            if replies:
                first = min(reply["at"] - reply["seconds"] for reply in replies)
                before = bisect_left(ends, batch["at"]) - 1  # one lock: batches and puts never overlap
                begun = min(begun, max(first, ends[before]) if before >= 0 else first)
                ended = float(np.mean([reply["at"] for reply in replies]))
            taken[id(batch)] = ended - begun
    return [taken[id(batch)] for batch in batches]


def answered_by(batches: Sequence[Entry], table: TimingTable) -> dict[int, list[Entry]]:
    """Return the replies of each batch by its ``id``: those between its end and the end of the next batch."""
    answered: dict[int, list[Entry]] = {}
    by_worker: dict[int, list[Entry]] = {}
    for batch in batches:
        by_worker.setdefault(batch["worker"], []).append(batch)
    for reply in table.of("worker/generate"):
        own = by_worker.get(reply["worker"], [])
        last = bisect_right(own, reply["at"], key=lambda batch: float(batch["at"])) - 1
        if last >= 0 and reply["at"] - reply["seconds"] <= own[last]["at"]:
            answered.setdefault(id(own[last]), []).append(reply)
    return answered


def _replies(table: TimingTable) -> Tree:
    """Return a server's reply times by the number of live requests, without replies delayed by a load."""
    replies, loads = table.some("worker/generate"), table.some("worker/load")
    undisturbed = [entry for entry in replies if not any(_held_up(entry, load) for load in loads)] or replies
    live_during = mean_live(replies)
    live = [live_during[id(entry)] for entry in undisturbed]
    seconds = [entry["seconds"] for entry in undisturbed]
    line = fit_line(live, seconds)
    served = [_served(load, replies) for load in loads]
    prepare, whole = float(np.mean(served)), float(np.mean([load["seconds"] for load in loads]))
    changes = {"prepare_seconds": _rounded(prepare), "reload_seconds": _rounded(whole - prepare)}
    return {**_law(line, undisturbed, live, seconds), **changes}


def _law(line: FittedLine, entries: Sequence[Entry], counts: Sequence[float], seconds: Sequence[float]) -> Tree:
    """Return a fitted line and the spread around it as settings."""
    factors = np.array([each / line.seconds(count) for count, each in zip(counts, seconds, strict=True)])
    began = np.array([entry["at"] - entry["seconds"] for entry in entries])
    workers = np.array([entry["worker"] for entry in entries])
    memories = []
    for worker in np.unique(workers):
        own = np.flatnonzero(workers == worker)
        memories.append((fit_memory(factors[own][np.argsort(began[own], kind="stable")].tolist()), len(own)))
    return {
        "batch_seconds": _rounded(line.fixed),
        "request_seconds": _rounded(line.each),
        "batch_spread": quantiles(factors / factors.mean()),
        "batch_memory": _rounded(sum(memory * n for memory, n in memories) / len(entries)),
    }


def _held_up(reply: Entry, load: Entry) -> bool:
    """Whether a reply was in progress when a load of the same worker ended, and so waited for it."""
    begun = reply["at"] - reply["seconds"]
    return bool(reply["worker"] == load["worker"] and begun < load["at"] < reply["at"])


def _served(load: Entry, replies: Sequence[Entry]) -> float:
    """Return how long a worker kept answering after a load began, seconds: weights are copied while it serves."""
    begun = load["at"] - load["seconds"]
    own = (reply["at"] for reply in replies if reply["worker"] == load["worker"])
    return max((at - begun for at in own if begun < at <= load["at"]), default=0.0)


def mean_live(replies: Sequence[Entry]) -> dict[int, float]:
    """Return the mean number of live requests on the worker during each reply, by the entry's ``id``."""
    live: dict[int, float] = {}
    for worker in {entry["worker"] for entry in replies}:
        own = [entry for entry in replies if entry["worker"] == worker]
        ends = np.array([entry["at"] for entry in own])
        begins = ends - np.array([entry["seconds"] for entry in own])
        times = np.concatenate([begins, ends])
        order = np.argsort(times, kind="stable")
        changes = np.concatenate([np.ones(len(own)), -np.ones(len(own))])[order]
        times = times[order]
        # The integral of the number of live requests is linear between two changes.
        total = np.concatenate([[0.0], np.cumsum(np.cumsum(changes)[:-1] * np.diff(times))])
        passed = np.interp(ends, times, total) - np.interp(begins, times, total)
        for entry, requests, lasted in zip(own, passed, ends - begins, strict=True):
            live[id(entry)] = max(1.0, float(requests / lasted)) if lasted > 0.0 else 1.0
    return live


def _control_seconds(table: TimingTable) -> float:
    """Return the event loop's busy time per request."""
    loop, requests = table.some("loop/busy"), table.some("worker/generate")
    passed = sum(entry["of"] for entry in loop)
    begin, end = requests[0]["at"], requests[-1]["at"]
    if passed <= 0.0 or end <= begin:
        raise ConfigError("the event loop was measured too briefly: repeat the run with more --hours")
    busy_share = sum(entry["seconds"] for entry in loop) / passed
    return _rounded(busy_share * (end - begin) / len(requests))


def _between_attempts(table: TimingTable) -> float:
    """Return the event loop's busy time between two attempts of a slot.

    The median, capped at the loop's work for a whole attempt, because longer gaps include waiting for admission.
    """
    since: dict[int, float] = {}
    gaps = []
    for entry in sorted((*table.some("env/evaluate"), *table.some("env/reset")), key=lambda entry: entry["at"]):
        if entry["what"] == "env/evaluate":
            since[entry["slot"]] = entry["at"] - entry["seconds"]
        elif entry["slot"] in since:
            gaps.append(entry["at"] - since.pop(entry["slot"]))
    turns = len(table.some("worker/generate")) / len(table.some("env/evaluate"))
    most = turns * _control_seconds(table)
    return _rounded(min(float(np.median(gaps)), most) if gaps else most)


def _learner(config: Config, table: TimingTable) -> Tree:
    """Return the trainer's speed in tokens of the prompt model, which its twin counts in the same way."""
    if config.backend.learner == "sim":
        return {}
    updates = table.some("learner/update")
    line = fit_line([entry["tokens"] / 1000.0 for entry in updates], [entry["seconds"] for entry in updates])
    return {"learner": {"fixed_seconds": _rounded(line.fixed), "kilotoken_seconds": _rounded(line.each)}}


def _faults(config: Config, table: TimingTable) -> Tree:
    """Return the shares of failed calls."""
    calls = {
        "start_failed": "env/start",
        "step_failed": "env/step",
        "score_failed": "env/evaluate",
        "load_failed": "worker/load",
        "update_failed": "learner/update",
    }
    return {"faults": {"kinds": {kind: {"share": _rounded(table.failed_share(call))} for kind, call in calls.items()}}}


def quantiles(seconds: Iterable[float]) -> Tree:
    """Return a distribution as a setting."""
    points = fit_quantiles(list(seconds)).points
    return {"kind": "quantiles", "points": [[quantile, _rounded(value)] for quantile, value in points]}


def read_latencies(file: Path, columns: Mapping[str, str], unit_seconds: float) -> dict[str, list[float]]:
    """Return the measured times of each latency of desktops, seconds; empty cells are left out.

    Args:
        file: A CSV file with a line of column names.
        columns: The column of each latency.
        unit_seconds: Seconds in a unit of its numbers.

    Raises:
        ConfigError: If the file, a column or a value is not usable.
    """
    if unknown := [name for name in columns if name not in ("start", *LATENCIES)]:
        known = ", ".join(("start", *LATENCIES))
        raise ConfigError(f"a desktop has no latency {unknown[0]!r}; it has: {known} (--column step=NAME)")
    times: dict[str, list[float]] = {name: [] for name in columns}
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            rows = csv.DictReader(lines)
            heads = rows.fieldnames or []
            if absent := [column for column in columns.values() if column not in heads]:
                raise ConfigError(f"{file} has no column {absent[0]!r}; it has: {', '.join(heads) or 'none'}")
            for row in rows:
                for name, column in columns.items():
                    if cell := (row[column] or "").strip():
                        place = f"{file}, line {rows.line_num}: {column}"
                        times[name].append(unit_seconds * _time(place, cell))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{file} is not a CSV file: {error}") from None
    for name, values in times.items():
        if len(values) < 2:
            raise ConfigError(f"{file}: column {columns[name]!r} has {len(values)} values; two or more are wanted")
    return times


def _time(place: str, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0.0:
        raise ConfigError(f"{place} = {cell!r}; a number of 0 or more is wanted")
    return value


def _rounded(value: float) -> float:
    """Return a number with nine significant digits."""
    return float(f"{value:.9g}")
