"""From the timings of a real run to a profile: settings of the modelled cluster that ``dartsim run`` loads.

Everything is taken as it was measured, under the load that the run itself made: waiting for an engine that starts few
containers at a time, or for cores that desktops, workers and learner share, is in the seconds and is not modelled
again. So a profile describes that configuration on that machine; with more desktops on the same machine it promises
too much.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from dartsim.config import Config
from dartsim.errors import ConfigError
from dartsim.run.timings import TIMINGS
from dartsim.sim.fitting import Line, fit_line, fit_quantiles

Tree = dict[str, Any]
Entry = Mapping[str, Any]
"""One line of the timings; see ``dartsim.run.timings.Timings``."""

LATENCIES = {
    "boot": "env/start",
    "setup": "env/reset",
    "step": "env/step",
    "evaluate": "env/evaluate",
    "teardown": "env/close",
}
"""Latencies of a desktop's model, and the call that each is measured by."""


WORK = frozenset({*LATENCIES.values(), "worker/generate", "learner/update"})
"""What goes on from the first moment of the control plane to its last."""


@dataclass(frozen=True, slots=True)
class Row:
    """How long one thing took.

    Attributes:
        what: Its name in the timings.
        n: How often it was measured, after the run's warm-up.
        median: Seconds.
        p95: 95 % quantile, seconds.
        mean: Seconds.
        failed: How often it failed; those are not in the seconds.
        beside: Mean number of its kind that were under way when one ended, itself included.
    """

    what: str
    n: int
    median: float
    p95: float
    mean: float
    failed: int
    beside: float


@dataclass(frozen=True, slots=True)
class Measured:
    """What the timings of a run say.

    Attributes:
        rows: Everything that was measured, by name.
        settings: The profile: a tree of settings below ``cluster``.
        notes: What the settings rest on, in sentences.
    """

    rows: Sequence[Row]
    settings: Tree
    notes: Sequence[str]

    @property
    def counts(self) -> dict[str, int]:
        """How often each thing was measured."""
        return {row.what: row.n for row in self.rows}


def read_timings(folder: Path) -> list[Entry]:
    """Return the timings of a run, in order. A last line that was cut off is left out.

    Raises:
        ConfigError: If there are none, or a line is not what it should be.
    """
    path = folder / TIMINGS
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read ({error.strerror}); only a run by the machine's clock writes it, such as "
            "`dartsim run --backend mock`"
        ) from None
    entries: list[Entry] = []
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            entries.append({**entry, "what": str(entry["what"]), "at": float(entry["at"])})
        except (ValueError, KeyError, TypeError):
            if number == len(lines) and not line.endswith("\n"):
                break  # the run was killed
            raise ConfigError(f"line {number} of {path} is not a timing: {line[:80]!r}; repeat the run") from None
    return entries


def measure(config: Config, entries: Sequence[Entry]) -> Measured:
    """Return what a run's timings say about the cluster it ran on.

    Args:
        config: The run's configuration.
        entries: Its timings.

    Raises:
        ConfigError: If a part that was real was never measured.
    """
    if config.backend.desktops == config.backend.workers == config.backend.learner == "sim":
        raise ConfigError("every part of this run was modelled: there is nothing to measure; see backend.desktops")
    # Engines may have started for a while before the control plane did.
    work = [entry for entry in entries if entry["what"] in WORK]
    times = [time for entry in work for time in (max(0.0, entry["at"] - entry["seconds"]), entry["at"])]
    first, last = min(times, default=0.0), max(times, default=0.0)
    found = Found(entries, first + config.run.warmup_share * (last - first))
    settings: Tree = {}
    notes: list[str] = []
    for part in (_desktops, _workers, _learner, _faults):
        settings = {**settings, **part(config, found, notes)}
    return Measured(found.rows(), {"cluster": settings}, notes)


def profile_toml(measured: Measured, about: Tree) -> str:
    """Return a profile as TOML, which ``dartsim.config.load`` takes as a configuration or lays over one.

    Args:
        measured: What was measured.
        about: Where it comes from.
    """
    return tomli_w.dumps({"about": about, **measured.settings})


class Found:
    """Timings by what they are of: those after the warm-up, or all if there are none after it.

    Args:
        entries: All of them.
        begin: When the warm-up was over, seconds of the run.
    """

    def __init__(self, entries: Iterable[Entry], begin: float) -> None:
        everything: dict[str, list[Entry]] = {}
        for entry in entries:
            if not entry.get("cancelled"):
                everything.setdefault(entry["what"], []).append(entry)
        self._by_what = {
            what: [entry for entry in those if entry["at"] >= begin] or those for what, those in everything.items()
        }

    def of(self, what: str) -> list[Entry]:
        """Return what was measured of one thing, without failures."""
        return [entry for entry in self._by_what.get(what, ()) if not entry.get("failed")]

    def some(self, what: str) -> list[Entry]:
        """Return the same.

        Raises:
            ConfigError: If there is nothing.
        """
        found = self.of(what)
        if not found:
            raise ConfigError(f"no {what} was measured: the run was too short; repeat it with more --hours")
        return found

    def seconds(self, what: str) -> list[float]:
        """Return how long each took."""
        return [entry["seconds"] for entry in self.some(what)]

    def failed_share(self, what: str) -> float:
        """Return the share that failed."""
        those = self._by_what.get(what, ())
        return sum(bool(entry.get("failed")) for entry in those) / len(those) if those else 0.0

    def rows(self) -> list[Row]:
        """Return a row for everything but the event loop, whose entries are shares of time."""
        return [self._row(what) for what in sorted(self._by_what) if what != "loop/busy" and self.of(what)]

    def _row(self, what: str) -> Row:
        entries = self.of(what)
        seconds = np.array([entry["seconds"] for entry in entries])
        kind = what.partition("/")[0]
        return Row(
            what,
            n=len(entries),
            median=float(np.median(seconds)),
            p95=float(np.quantile(seconds, 0.95)),
            mean=float(seconds.mean()),
            failed=len(self._by_what[what]) - len(entries),
            beside=float(np.mean([entry.get("busy", {}).get(kind, 0) for entry in entries])),
        )


def _desktops(config: Config, found: Found, notes: list[str]) -> Tree:
    """Return the desktops' latencies, on hosts that add nothing to them."""
    if config.backend.desktops == "sim":
        return {}
    hosts = {"count": 1, "cores": 1024.0, "memory_gib": 1024.0, "concurrent_starts": config.rollout.num_desktops}
    inline = config.backend.desktops == "mock"
    latency: Tree = {"start": 0.0, "memory_gib": 0.0, "boot_cores": 0.0, "step_cores": 0.0}
    latency |= {"settle_seconds": 0.0, "evaluate_settle_seconds": 0.0}
    for name, what in LATENCIES.items():
        latency[name] = 0.0 if inline else _quantiles(found.seconds(what))
    if inline:
        notes.append("The mock desktops were computed by the event loop: their time is in engine.control_seconds.")
    else:
        notes.append(
            "A desktop's boot is the whole start, waiting for the engine's start slots included; its latencies are "
            "those under the run's own load."
        )
    return {"hosts": hosts, "env": {"profile": "desktop-small", "latency": latency}}


def _workers(config: Config, found: Found, notes: list[str]) -> Tree:
    """Return the engine's model."""
    if config.backend.workers == "sim":
        return {}
    inline = config.backend.desktops == "mock"
    engine: Tree = {"overhead_seconds": 0.0, "prefix_cache": False}
    if config.backend.workers == "local":
        engine |= {"model": "batch", **_batches(found, notes, with_waits=not inline)}
    else:
        engine |= {"model": "shared", **_replies(found, notes)}
    engine["control_seconds"] = _control_seconds(found) if inline else 0.0
    return {"engine": engine}


def _batches(found: Found, notes: list[str], *, with_waits: bool) -> Tree:
    """Return the batches of workers in this process.

    Args:
        found: The timings.
        notes: Gets a sentence.
        with_waits: Whether what a batch waited for the event loop is the batch's time; else it is the loop's own.
    """

    def took(what: str) -> list[float]:
        return [entry["seconds"] + (entry["waited"] if with_waits else 0.0) for entry in found.some(what)]

    sizes, seconds = [float(entry["size"]) for entry in found.some("worker/batch")], took("worker/batch")
    line = fit_line(sizes, seconds)
    notes.append(
        f"A batch of {np.mean(sizes):.1f} requests on average took {_said(line)} s, half of them within "
        f"{line.spread:.0%} of that."
    )
    return {**_law(line, sizes, seconds), "reload_seconds": _rounded(float(np.mean(took("worker/put"))))}


def _replies(found: Found, notes: list[str]) -> Tree:
    """Return how long a server's replies take among others; those that a change of weights held up are left out."""
    replies, loads = found.some("worker/generate"), found.some("worker/load")
    undisturbed = [entry for entry in replies if not any(_overlap(entry, load) for load in loads)] or replies
    beside = mean_live(replies)
    live = [beside[id(entry)] for entry in undisturbed]
    seconds = [entry["seconds"] for entry in undisturbed]
    line = fit_line(live, seconds)
    notes.append(
        f"A reply among {np.mean(live):.1f} live requests on average took {_said(line)} s, half of them within "
        f"{line.spread:.0%} of that."
    )
    return {**_law(line, live, seconds), "reload_seconds": _rounded(float(np.mean(found.seconds("worker/load"))))}


def _law(line: Line, counts: Sequence[float], seconds: Sequence[float]) -> Tree:
    """Return a line, and the spread about it, as settings."""
    factors = np.array([each / line.seconds(count) for count, each in zip(counts, seconds, strict=True)])
    return {
        "batch_seconds": _rounded(line.fixed),
        "request_seconds": _rounded(line.each),
        "batch_spread": _quantiles(factors / factors.mean()),
    }


def _overlap(reply: Entry, load: Entry) -> bool:
    """Whether a load of the same worker went on during a reply."""
    begin, end = reply["at"] - reply["seconds"], load["at"] - load["seconds"]
    return bool(reply["worker"] == load["worker"] and begin < load["at"] and end < reply["at"])


def mean_live(replies: Sequence[Entry]) -> dict[int, float]:
    """Return how many requests were live on its worker during each reply, itself included, averaged over its time.

    Keys are the ``id`` of the entries.
    """
    found: dict[int, float] = {}
    for worker in {entry["worker"] for entry in replies}:
        own = [entry for entry in replies if entry["worker"] == worker]
        ends = np.array([entry["at"] for entry in own])
        begins = ends - np.array([entry["seconds"] for entry in own])
        times = np.concatenate([begins, ends])
        order = np.argsort(times, kind="stable")
        changes = np.concatenate([np.ones(len(own)), -np.ones(len(own))])[order]
        times = times[order]
        # The integral of the number of live requests is straight between two changes of it.
        total = np.concatenate([[0.0], np.cumsum(np.cumsum(changes)[:-1] * np.diff(times))])
        passed = np.interp(ends, times, total) - np.interp(begins, times, total)
        for entry, requests, lasted in zip(own, passed, ends - begins, strict=True):
            found[id(entry)] = max(1.0, float(requests / lasted)) if lasted > 0.0 else 1.0
    return found


def _control_seconds(found: Found) -> float:
    """Return the time that the event loop was at work, a request."""
    loop, requests = found.some("loop/busy"), found.some("worker/generate")
    passed = sum(entry["of"] for entry in loop)
    begin, end = requests[0]["at"], requests[-1]["at"]
    if passed <= 0.0 or end <= begin:
        raise ConfigError("the event loop was not watched for long enough: repeat the run with more --hours")
    busy_share = sum(entry["seconds"] for entry in loop) / passed
    return _rounded(busy_share * (end - begin) / len(requests))


def _learner(config: Config, found: Found, notes: list[str]) -> Tree:
    """Return the trainer's speed."""
    if config.backend.learner == "sim":
        return {}
    updates = found.some("learner/update")
    line = fit_line([entry["turns"] for entry in updates], [entry["seconds"] for entry in updates])
    turns = sorted({int(entry["turns"]) for entry in updates})
    notes.append(
        f"An update took {_said(line, 'turns')} s ({len(updates)} updates of "
        + (f"{turns[0]} to {turns[-1]} turns)." if len(turns) > 1 else f"{turns[0]} turns: half is taken for theirs).")
    )
    return {"learner": {"fixed_seconds": _rounded(line.fixed), "turn_seconds": _rounded(line.each)}}


def _faults(config: Config, found: Found, notes: list[str]) -> Tree:
    """Return the shares of calls that failed."""
    shares: Mapping[str, Callable[[], float]] = {
        "start_failure_share": lambda: found.failed_share("env/start"),
        "step_failure_share": lambda: found.failed_share("env/step"),
        "score_failure_share": lambda: found.failed_share("env/evaluate"),
        "load_failure_share": lambda: found.failed_share("worker/load"),
        "update_failure_share": lambda: found.failed_share("learner/update"),
    }
    return {"faults": {name: _rounded(share()) for name, share in shares.items()}}


def _quantiles(seconds: Iterable[float]) -> Tree:
    """Return a distribution as a setting."""
    points = fit_quantiles(list(seconds)).points
    return {"kind": "quantiles", "points": [[quantile, _rounded(value)] for quantile, value in points]}


def _said(line: Line, of: str = "requests") -> str:
    return f"{line.fixed:.4g} + {line.each:.4g} x {of}"


def _rounded(value: float) -> float:
    """Return a number with nine significant digits."""
    return float(f"{value:.9g}")
