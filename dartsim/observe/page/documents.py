"""The documents of a page: each is a JSON value and a pure function of a run directory.

    now        state, progress, verdict, alarms, counts, what every component does and waits for, causes of idle time
    states     titles, labels, colors and meanings of all states and causes
    series     rates, shares, updates and success over time
    lanes      shares of each state over the whole run at several scales; chunks of stays; marks
    lanes/W:K  the stays between W * K and W * (K + 1) seconds
    attempts   the newest attempts as columns
    attempt/N  the turns of one attempt

Whatever a directory holds becomes text or numbers in these values; nothing of it is executed or imported, and no file
outside it is read.
"""

from __future__ import annotations

import gzip
import json
import math
import sqlite3
import tomllib
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import pstdev
from typing import Any, TypeVar

from dartsim.core.errors import ConfigError, StoreFault, TornRecord
from dartsim.core.files import below
from dartsim.core.png import check_png
from dartsim.observe.bias import EASY, HARD
from dartsim.observe.figures import MAX_UPDATES, intervals, thinned
from dartsim.observe.metrics import read_snapshots, read_updates
from dartsim.observe.page.run_state import ENDED, is_overdue, own_summary, plain_figures, read_status
from dartsim.observe.recording import (
    ATTEMPTS,
    MAX_BYTES,
    SEGMENTS,
    STATE_COLUMNS,
    STATES,
    AttemptColumns,
    AttemptRow,
    Present,
    SlotHistory,
    Stays,
    read_attempts,
    read_segments,
    read_state_rows,
    with_open_stays,
)
from dartsim.observe.records import HELD_OUT, UpdateRecord
from dartsim.observe.rundir import CONFIG, METRICS, SNAPSHOTS, STATUS, SUMMARY, TOKENS, is_locked
from dartsim.observe.states import AT_WORK, CAUSES, POPULATIONS, DesktopState, EngineState
from dartsim.observe.status import waiting
from dartsim.observe.success import wilson
from dartsim.store.database import DATABASE_FILE, SCREENS_FOLDER, reading

T = TypeVar("T")

DrawnActions = Callable[[str, Mapping[str, Any], int, int], list[dict[str, Any]]]
"""Returns what to draw for an action's text, given the section ``policy`` and the picture's width and height."""

MAX_POINTS = 400
MIN_PLAYED, MAX_PLAYED = 50, 40
"""Attempts whose mean reward is one point, and the number of such points."""
MAX_ATTRIBUTED = 12_000
"""Newest stays of each population in which causes of idle time are looked for while a run goes on."""
SMALLEST_LEVEL = 128
"""The coarsest level of lanes has about this many bins; each finer one has four times as many."""
CHUNK_ROWS = 8_000
"""A chunk of stays has about this many."""
MAX_SCREEN_BYTES = 32 * 2**20
MAX_TEXT_BYTES = 64 * 2**20
"""The texts of tokens have at most this many, unpacked."""

LISTED = ("attempt", "task", "group", "version", "ending", "cause", "reward", "num_turns", "started", "finished")
"""Columns of ``attempts.jsonl`` that the list of attempts has."""
METRICS_SHOWN: Mapping[str, tuple[str, ...]] = {
    "loss": ("learner/loss",),
    "entropy": ("objective/entropy",),
    "kl": ("objective/kl_old_new",),
    "kl_reference": ("objective/kl_reference",),
    "clipped_share": ("objective/clipped_low_share", "objective/clipped_high_share"),
    "effective_sample_size": ("importance/effective_sample_share",),
    "gradient_norm": ("learner/grad_norm",),
    "masked_share": ("objective/masked_share",),
}
"""Columns of updates, each with the metrics whose sum it is."""


class RunDocuments:
    """The documents of one run directory; files are read again only after they have changed.

    Args:
        folder: The run directory.
        drawn_actions: See ``DrawnActions``.
    """

    def __init__(self, folder: Path, drawn_actions: DrawnActions) -> None:
        self.folder = folder
        self._drawn_actions = drawn_actions
        self._known: dict[str, tuple[Any, Any]] = {}
        self._documents: Mapping[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
            "now": (self.now, (STATUS, SUMMARY, SEGMENTS)),
            "states": (states, ()),
            "series": (self.series, (SNAPSHOTS, METRICS, SUMMARY)),
            "lanes": (self.lanes, (STATUS, STATES, SEGMENTS, METRICS, SUMMARY)),
            "attempts": (self.attempts, (STATUS, ATTEMPTS)),
        }

    def get(self, path: str) -> Any:
        """Return a document.

        Raises:
            KeyError: If there is none of this name.
            ConfigError: If the directory is not a run's, has another format, or a file that it needs is damaged.
        """
        self._status()  # refuses what is no run
        name, _, rest = path.partition("/")
        if name == "lanes" and rest:
            return self.chunk(rest)
        if name == "attempt" and rest.lstrip("-").isdecimal():
            return self.attempt(int(rest))
        compute, files = self._documents[path]
        return self._kept(f"/{path}", files, compute)

    def revision(self, path: str) -> str:
        """Return a text that changes whenever a document does."""
        name, _, rest = path.partition("/")
        if name == "attempt" and rest:
            return f"{self._stamp(ATTEMPTS, DATABASE_FILE)}"
        return f"{self._stamp(*self._documents['lanes' if name == 'lanes' else path][1])}"

    @property
    def names(self) -> tuple[str, ...]:
        """The documents, but for single attempts and chunks."""
        return tuple(self._documents)

    def now(self) -> dict[str, Any]:
        status, config = self._status(), self._config()
        state, summary = status["state"], self._summary()
        run, counts = config.get("run", {}), status.get("counts", {})
        done, whole = float(status["run_seconds"]), float(status["of_seconds"])
        shares = [done / whole if whole else 0.0]
        updates = run.get("updates")
        if isinstance(updates, int) and updates > 0:
            shares.append(counts.get("updates", 0) / updates)
        return {
            "name": status["name"],
            "scheduler": config.get("scheduler", status.get("preset")),
            "seed": status.get("seed"),
            "clock": "simulated" if status.get("clock") == "virtual" else "real",
            "state": state,
            "run_seconds": done,
            "of_seconds": whole,
            "progress": 1.0 if state == "finished" else min(1.0, max(shares)),
            "eta_seconds": None if state in ENDED else self._eta(max(shares)),
            "target_success": _number(run.get("target_success")),
            "surrogate": config.get("policy", {}).get("kind") == "surrogate",
            "verdict": summary.get("verdict") or status.get("verdict"),
            "error": status.get("error"),
            "alarms": [
                {**alarm, "active": alarm["cleared_seconds"] is None and state not in ENDED}
                for alarm in status.get("alarms", ())
            ],
            "counts": counts,
            "figures": plain_figures(summary),
            "as_of_seconds": status["as_of_seconds"],
            "waiting": waiting(status["components"]),
            "idle": self._idle(),
        }

    def _idle(self) -> dict[str, Any] | None:
        """Return the causes of idle time (see ``dartsim.observe.idle``); of a run that goes on, in its newest time."""
        from dartsim.observe.idle import attribute  # needs numpy
        from dartsim.observe.window import window_of

        def found() -> dict[str, Any] | None:
            newest = None if self._status()["state"] in ENDED else -MAX_ATTRIBUTED
            window = window_of([own[newest:] for own in self._segments()])
            return None if window is None else attribute(window)

        return self._kept("idle", (SEGMENTS, STATUS), found)

    def series(self) -> dict[str, Any]:
        snapshots = self._cached(SNAPSHOTS, lambda path: read_snapshots(path, until=math.inf))
        columns = intervals(thinned(snapshots, MAX_POINTS))
        updates = self._updates()
        shown = thinned(updates, MAX_UPDATES)
        samples = dict(zip((r.update for r in updates), accumulate(r.num_turns for r in updates), strict=True))
        rates = [
            60.0 * (samples[late.update] - samples[early.update]) / max(1e-6, late.time - early.time)
            for early, late in pairwise(shown)
        ]
        return {
            "seconds": [round(3600.0 * hours, 3) for hours in columns["to_hours"]],
            "rates": {"generated_turns_per_minute": columns["rates"]["generated_turns_per_minute"]},
            "utilization": columns["utilization"],
            "updates": {
                "version": [record.update for record in shown],
                "seconds": [round(record.time, 3) for record in shown],
                "samples": [samples[record.update] for record in shown],
                "reward": [_number(record.mean_reward) for record in shown],
                "turns": [record.num_turns for record in shown],
                "staleness": [_number(record.staleness_mean) for record in shown],
                "turns_per_minute": [None, *map(_number, rates)][: len(shown)],
                "reply_tokens": [
                    _ratio(record.metrics, "learner/response_tokens", "learner/turns") for record in shown
                ],
                **{name: [_sum(record.metrics, keys) for record in shown] for name, keys in METRICS_SHOWN.items()},
            },
            "success": self._success(updates, samples),
            "played": self._played(samples),
            "difficulty": self._difficulty(),
        }

    def _success(self, updates: Sequence[UpdateRecord], samples: Mapping[int, int]) -> dict[str, Any]:
        """Return success on held-out tasks, with the 95 % interval of that many tasks."""
        tasks = self._config().get("tasks", {}).get("held_out", 0)
        held_out = self._summary().get("learning", {}).get("held_out", {"hours": (), "success_rate": ()})
        hours = zip(held_out["hours"], held_out["success_rate"], strict=False)  # those before and after, too
        by_second = {round(3600.0 * hour): (3600.0 * hour, rate) for hour, rate in hours}
        by_second |= {round(r.time): (r.time, r.metrics[HELD_OUT]) for r in updates if HELD_OUT in r.metrics}
        points = sorted(by_second.values())
        versions = [max((r.update for r in updates if r.time <= time + 1.0), default=0) for time, _ in points]
        bounds = [wilson(min(1.0, max(0.0, rate)), tasks) if tasks else (None, None) for _, rate in points]
        return {
            "version": versions,
            "seconds": [round(time, 3) for time, _ in points],
            "samples": [samples.get(version, 0) for version in versions],
            "rate": [_number(rate) for _, rate in points],
            "low": [_number(low) for low, _ in bounds],
            "high": [_number(high) for _, high in bounds],
        }

    def _played(self, samples: Mapping[int, int]) -> dict[str, Any]:
        """Return the mean reward of all attempts that were not masked, with its 95 % interval, in parts of equal size.

        Unlike the reward of batches, it does not depend on which groups were selected.
        """
        ended = [row.columns for row in self._attempts().values() if row.columns.reward is not None]
        size = max(MIN_PLAYED, -(-len(ended) // MAX_PLAYED))
        parts = [ended[place : place + size] for place in range(0, len(ended) - size + 1, size)]
        rewards = [[own.reward for own in part if own.reward is not None] for part in parts]
        means = [sum(values) / size for values in rewards]
        halves = [1.96 * pstdev(values) / math.sqrt(size) for values in rewards]
        versions = [part[-1].version for part in parts]
        return {
            "version": versions,
            "seconds": [part[-1].finished for part in parts],
            "samples": [samples.get(version, 0) for version in versions],
            "rate": [round(mean, 4) for mean in means],
            "low": [round(mean - half, 4) for mean, half in zip(means, halves, strict=True)],
            "high": [round(mean + half, 4) for mean, half in zip(means, halves, strict=True)],
        }

    def _difficulty(self) -> dict[str, Any]:
        """Return the share of attempts at hard, middle and easy tasks among those of each update.

        A task's difficulty is the mean reward of its attempts in this run.
        """
        rows = self._attempts().values()
        rewards: dict[str, list[float]] = defaultdict(list)
        for row in rows:
            if row.columns.reward is not None:
                rewards[row.columns.task].append(row.columns.reward)
        means = {task: sum(values) / len(values) for task, values in rewards.items()}
        kinds = {task: "hard" if mean < HARD else "easy" if mean > EASY else "middle" for task, mean in means.items()}
        by_update: dict[int, Counter[str]] = defaultdict(Counter)
        for row in rows:
            if row.update is not None and row.columns.task in kinds:
                by_update[row.update][kinds[row.columns.task]] += 1
        times = {record.update: record.time for record in self._updates()}
        shown = [update for update in thinned(sorted(by_update), MAX_POINTS) if update in times]
        return {
            "version": shown,
            "seconds": [round(times[update], 3) for update in shown],
            **{
                kind: [round(by_update[update][kind] / by_update[update].total(), 4) for update in shown]
                for kind in ("hard", "middle", "easy")
            },
        }

    def lanes(self) -> dict[str, Any]:
        rows = self._cached(STATES, read_state_rows)
        end = rows[-1][0] if rows else 0.0
        segments = self._segments()
        ends = [float(own["end"].max()) for own in segments if len(own)]
        members = _present_states(self._status())
        populations = [
            {"name": name, "size": len(members[name]), "levels": levels(rows, columns)}
            for name, columns in STATE_COLUMNS.items()
        ]
        width = chunk_seconds(segments)
        known = sorted({int(place) for own in segments for place in own["end"] // width})
        return {
            "to": round(max([end, *ends]), 3),
            "populations": populations,
            "chunks": [{"id": f"{width}:{k}", "from": width * k, "to": width * (k + 1)} for k in known],
            "marks": self._marks(),
            "faults": self._faults(),
            "faults_from": self._faults_from(),
        }

    def _marks(self) -> list[dict[str, Any]]:
        marks: list[dict[str, Any]] = [
            {"seconds": round(record.time, 3), "kind": "update", "label": f"update {record.update}"}
            for record in thinned(self._updates(), MAX_UPDATES)
        ]
        marks += [
            {"seconds": round(start, 3), "kind": "sync", "label": f"weight sync, {end - start:.1f} s"}
            for start, end in self._syncs()
        ]
        marks += [
            {"seconds": alarm["since_seconds"], "kind": "alarm", "label": alarm["name"]}
            for alarm in self._status().get("alarms", ())
        ]
        return sorted(marks, key=lambda mark: float(mark["seconds"]))

    def _faults(self) -> dict[str, list[float]]:
        """Return when attempts were masked, seconds, by cause."""
        faults: dict[str, list[float]] = defaultdict(list)
        for own in (row.columns for row in self._attempts().values()):
            if own.cause and own.ending != "cancelled":
                faults[own.cause].append(own.finished)
        return faults

    def _faults_from(self) -> float:
        """Return the time from which attempts are known: of a large file the newest part is read."""
        stamp, rows = self._stamp(ATTEMPTS)[0], list(self._attempts().values())
        return rows[0].columns.finished if rows and stamp and stamp[1] > MAX_BYTES else 0.0

    def _syncs(self) -> list[list[float]]:
        """Return when engines loaded weights, as far as their stays are kept; loads of several at a time are one."""
        syncs: list[list[float]] = []
        engines = dict(zip(POPULATIONS, self._segments(), strict=False)).get("engines")
        loads = [] if engines is None else engines[["start", "end"]][engines["state"] == EngineState.LOADING].tolist()
        for start, end in sorted(loads):
            if syncs and start <= syncs[-1][1]:
                syncs[-1][1] = max(syncs[-1][1], end)
            elif start > 0.0:  # not those at the start
                syncs.append([start, end])
        return syncs

    def chunk(self, name: str) -> dict[str, Any]:
        """Return the stays that begin or end in a chunk, by member and time, with the attempt of each desktop's."""
        width, _, place = name.partition(":")
        if not (width.isdecimal() and place.isdecimal() and 0 < int(width) < 2**40):
            raise KeyError(name)
        low, high = int(width) * int(place), int(width) * (int(place) + 1)
        played = self._kept(
            "played", (ATTEMPTS,), lambda: SlotHistory(row.columns for row in self._attempts().values())
        )
        populations = {}
        for (kind, _), own in zip(POPULATIONS.items(), self._segments(), strict=False):
            stays = sorted(own[(own["start"] < high) & (own["end"] > low)].tolist(), key=lambda s: (s[0], s[2]))
            found = [played.attempt_at(s[0], (s[2] + s[3]) / 2) if kind == "desktops" else None for s in stays]
            populations[kind] = {
                "member": [s[0] for s in stays],
                "state": [s[1] for s in stays],
                "start": [round(s[2], 3) for s in stays],
                "end": [round(s[3], 3) for s in stays],
                "attempt": [attempt and attempt.attempt for attempt in found],
            }
        return {"from": low, "to": high, "populations": populations}

    def attempts(self) -> dict[str, Any]:
        rows = self._attempts().values()
        kept = self._attempts_with_turns()
        return {
            "total": max(len(rows), int(self._status().get("counts", {}).get("trajectories", 0))),
            **{name: [getattr(row.columns, name) for row in rows] for name in LISTED},
            "state": [row.state for row in rows],
            "reason": [row.reason for row in rows],
            "update": [row.update for row in rows],
            "staleness": [None if row.update is None else row.update - 1 - row.columns.oldest for row in rows],
            "has_turns": [row.columns.attempt in kept for row in rows],
        }

    def attempt(self, number: int) -> dict[str, Any]:
        row = self._attempts().get(number)
        if row is None:
            raise KeyError(f"attempt/{number}")
        own = row.columns
        instruction, turns, why = self._turns(number)
        reply_seconds, act_seconds = self._turn_seconds(own)

        def nth(values: Sequence[T], place: int) -> T | None:
            return values[place] if place < len(values) else None

        return {
            **own._asdict(),
            "state": row.state,
            "reason": row.reason,
            "update": row.update,
            "instruction": instruction,
            "turns_missing": why,
            "turns": [
                {
                    "model_seconds": nth(reply_seconds, place),
                    "desktop_seconds": nth(act_seconds, place),
                    "advantage": nth(row.advantages, place),
                    "kept": nth(row.kept, place),
                    **turn,
                }
                for place, turn in enumerate(turns)
            ],
        }

    def _turns(self, number: int) -> tuple[str | None, list[dict[str, Any]], str | None]:
        """Return an attempt's instruction and turns from the database, or why there are none."""
        try:
            if not below(self.folder, DATABASE_FILE).is_file():
                return None, [], "the run has no database (curation.store)"
            with reading(below(self.folder, DATABASE_FILE), beside_writer=is_locked(self.folder)) as database:
                query = "SELECT instruction, turns FROM trajectories JOIN tasks USING (task) WHERE attempt = ?"
                found = database.execute(query, (number,)).fetchone()
            if found is None:
                return None, [], "the database does not have it yet"
            from dartsim.store.rows import unpacked_turns  # needs numpy

            instruction = str(json.loads(found[0]))
            if found[1] is None:
                return instruction, [], "its turns are no longer kept (run.keep_attempts)"
            return instruction, [self._turn(turn) for turn in unpacked_turns(found[1])], None
        except (StoreFault, TornRecord, ConfigError, sqlite3.Error) as fault:
            return None, [], str(fault)
        except NOT_WRITTEN as fault:
            return None, [], f"its row in the database is not one that a run writes ({type(fault).__name__})"

    def _turn(self, turn: Any) -> dict[str, Any]:
        action, screen = str(turn.action), turn.screenshot and str(turn.screenshot).removesuffix(".png")
        size = None
        try:
            size = check_png(self.screen(f"{screen}.png")) if screen else None
        except (ConfigError, KeyError):
            screen = None
        policy = self._config().get("policy", {})
        side = policy.get("screen") if isinstance(policy.get("screen"), int) else None
        width, height = size or ((side, side) if side else (1920, 1080))
        thought, found, said = action.partition("Action:")
        return {
            "action": said.strip() if found else action,
            "thought": thought.removeprefix("Thought:").strip() if found else None,
            "reply": action,
            "draw": self._drawn_actions(action, policy, width, height),
            "size": [width, height],
            "tokens": turn.tokens and [self._text(token) for token in turn.tokens],
            "logprobs": turn.logprobs,
            "entropies": turn.entropies,
            "prompt_tokens": turn.prompt_tokens,
            "response_tokens": turn.response_tokens,
            "version": turn.version,
            "screen": screen,
        }

    def _text(self, token: int) -> str | int:
        """Return a token's text, or its number if the run has no texts."""
        texts = self._cached(TOKENS, _texts)
        return texts[token] if 0 <= token < len(texts) else token

    def screen(self, name: str) -> bytes:
        """Return a screenshot's PNG file.

        Raises:
            KeyError: If there is none of this name.
            ConfigError: If it is too large, damaged, or a link.
        """
        digest = name.removesuffix(".png")
        if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
            raise KeyError(name)
        path = below(self.folder, f"{SCREENS_FOLDER}/{digest[:2]}/{digest}.png")
        if not path.is_file():
            raise KeyError(name)
        if (size := path.stat().st_size) > MAX_SCREEN_BYTES:
            raise ConfigError(f"screenshot {digest[:8]} has {size:,} bytes, at most {MAX_SCREEN_BYTES:,} are shown")
        data = path.read_bytes()
        try:
            check_png(data)
        except ValueError as error:
            raise ConfigError(f"screenshot {digest[:8]} is not shown: {error}") from None
        return data

    def _turn_seconds(self, own: AttemptColumns) -> tuple[list[float], list[float]]:
        """Return how long an attempt's turns took: waiting for replies, and acting."""
        replies: list[float] = []
        acts: list[float] = []
        desktops: Stays = next(iter(self._segments()), ())
        if own.slot is None or not len(desktops) or desktops["start"][0] > own.started:
            return replies, acts
        played = (desktops["start"] >= own.started) & (desktops["end"] <= own.finished + 1e-3)
        waiting = False
        for _, state, start, end in desktops[(desktops["component"] == own.slot) & played].tolist():
            if state in (DesktopState.GENERATING, DesktopState.SYNC_WAIT):
                if not waiting:
                    replies.append(0.0)
                replies[-1] = round(replies[-1] + end - start, 3)
                waiting = True
            elif state == DesktopState.ACTING:
                acts.append(round(end - start, 3))
                waiting = False
        return replies, acts

    def _attempts_with_turns(self) -> set[int]:
        try:
            if not below(self.folder, DATABASE_FILE).is_file():
                return set()
            with reading(below(self.folder, DATABASE_FILE), beside_writer=is_locked(self.folder)) as database:
                return {attempt for (attempt,) in database.execute(WITH_TURNS)}
        except (StoreFault, ConfigError, sqlite3.Error):
            return set()

    def _segments(self) -> list[Stays]:
        """Return the recorded stays of each population, and those that were going on when the status was written."""
        segments = self._cached(SEGMENTS, lambda path: read_segments(path, until=math.inf))
        status = self._status()
        if not segments or status["state"] in ENDED:
            return segments
        until = max([float(status["as_of_seconds"]), *(float(own["end"].max()) for own in segments if len(own))])
        present = _present_states(status).values()
        return self._kept("stays", (SEGMENTS, STATUS), lambda: with_open_stays(segments, present, until))

    def _status(self) -> dict[str, Any]:
        return self._kept("status", (STATUS,), lambda: read_status(self.folder))

    def _attempts(self) -> dict[int, AttemptRow]:
        return self._cached(ATTEMPTS, read_attempts)

    def _updates(self) -> list[UpdateRecord]:
        return self._cached(METRICS, read_updates)

    def _config(self) -> Mapping[str, Any]:
        return self._cached(CONFIG, _toml)

    def _summary(self) -> Mapping[str, Any]:
        return own_summary(self._status(), self._cached(SUMMARY, _object))

    def _cached(self, name: str, read: Callable[[Path], T]) -> T:
        """Return what a file of the directory holds, read again after it has changed."""
        path = below(self.folder, name)
        try:
            return self._kept(name, (name,), lambda: read(path))
        except (OSError, EOFError, zlib.error, *NOT_WRITTEN) as error:
            raise ConfigError(f"{name} is damaged or from elsewhere: {type(error).__name__}: {error}") from None

    def _kept(self, key: str, names: Sequence[str], compute: Callable[[], T]) -> T:
        """Return what was computed from files, again after one of them has changed."""
        stamp = self._stamp(*names)
        known = self._known.get(key)
        if known is None or known[0] != stamp:
            known = self._known[key] = stamp, compute()
        value: T = known[1]
        return value

    def _stamp(self, *names: str) -> tuple[tuple[int, ...] | None, ...]:
        """Return what changes with files; with the status also when the run falls silent, or its process is gone."""
        stamps: list[tuple[int, ...] | None] = []
        for name in names:
            try:
                stat = (self.folder / name).lstat()
            except OSError:
                stamps.append(None)
                continue
            life = (is_locked(self.folder), is_overdue(stat.st_mtime)) if name == STATUS else ()
            stamps.append((stat.st_mtime_ns, stat.st_size, *life))
        return tuple(stamps)

    def _eta(self, share: float) -> float | None:
        """Return the seconds that the rest of a run takes, if it goes on as fast as so far."""
        begun, written = self._stamp(CONFIG, STATUS)
        if begun is None or written is None or not 0.0 < share <= 1.0:
            return None
        return round((written[0] - begun[0]) / 1e9 * (1.0 - share) / share, 1)


NOT_WRITTEN = (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError)
"""What code raises on values that no run writes."""
WITH_TURNS = "SELECT attempt FROM trajectories WHERE turns IS NOT NULL"


def states() -> dict[str, Any]:
    """Return the tables of states and causes."""
    return {
        "populations": {
            name: {
                "title": info.title,
                "states": [
                    {"label": s.info.label, "color": s.info.color, "meaning": s.info.meaning} for s in info.states
                ],
            }
            for name, info in POPULATIONS.items()
        },
        "at_work": AT_WORK,
        "causes": [{"label": label, "color": info.color, "meaning": info.meaning} for label, info in CAUSES.items()],
    }


def levels(rows: Sequence[Sequence[float]], columns: slice) -> list[dict[str, Any]]:
    """Return shares of states by time at several scales, the coarsest first.

    Args:
        rows: Time, seconds, and component-seconds in each state up to it, as ``states.bin`` has them.
        columns: Of one population.

    Returns:
        For each level ``seconds`` (length of a bin), ``from`` (start of the first) and ``shares`` [bin][state], which
        add up to 1 in each bin.
    """
    if len(rows) < 2:
        return []
    import numpy as np

    table = np.array([[0.0] * len(rows[0]), *rows])
    times, spent = table[:, 0], table[:, columns]
    found: list[dict[str, Any]] = []
    bins = SMALLEST_LEVEL
    while not found or bins <= len(rows):
        edges = np.linspace(0.0, times[-1], bins + 1)
        parts = np.diff([np.interp(edges, times, column) for column in spent.T])
        shares = np.round(parts / np.maximum(parts.sum(axis=0), 1e-12), 4).T
        found.append({"seconds": float(edges[1]), "from": 0.0, "shares": shares.tolist()})
        bins *= 4
    return found


def chunk_seconds(segments: Sequence[Stays]) -> int:
    """Return the length of a chunk with at most about ``CHUNK_ROWS`` stays: a power of 2, so that it rarely changes."""
    ends: Stays = max(segments, key=len)["end"][-CHUNK_ROWS:] if segments else ()
    span = max(1.0, ends[-1] - ends[0]) if len(ends) else 1.0
    return int(2 ** math.floor(math.log2(span)))


def _present_states(status: Mapping[str, Any]) -> Mapping[str, Present]:
    """Return the state of each member of each population, and since when, seconds."""
    labels = {name: {s.info.label: int(s) for s in info.states} for name, info in POPULATIONS.items()}
    kinds = {info.member: name for name, info in POPULATIONS.items()}
    found: dict[str, dict[int, tuple[int, float | None]]] = {name: {} for name in POPULATIONS}
    for part in status["components"]:
        kind, _, number = str(part["component"]).partition(" ")
        name = kinds.get(kind)
        if name is not None and part["state"] in labels[name] and (not number or number.isdecimal()):
            found[name][int(number or 0)] = labels[name][part["state"]], float(part["since_seconds"])
    return found


def _number(value: Any) -> float | None:
    """Return a number with six significant digits; None if there is none, or it is not finite."""
    return float(f"{value:.6g}") if isinstance(value, int | float) and math.isfinite(value) else None


def _sum(metrics: Mapping[str, float], names: Iterable[str]) -> float | None:
    found = [metrics[name] for name in names if name in metrics]
    return _number(sum(found)) if found else None


def _ratio(metrics: Mapping[str, float], part: str, whole: str) -> float | None:
    return _number(metrics[part] / metrics[whole]) if part in metrics and metrics.get(whole) else None


def _toml(path: Path) -> Mapping[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _texts(path: Path) -> list[str]:
    if not path.is_file():
        return []
    with gzip.open(path) as file:
        texts = json.loads(file.read(MAX_TEXT_BYTES))
    return [str(text) for text in texts]


def _object(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if not isinstance(value, dict):
        raise ValueError(f"it holds a {type(value).__name__}")
    return value
