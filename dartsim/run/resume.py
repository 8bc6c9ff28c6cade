"""Resumes an interrupted run: after a crash, after Ctrl-C, or for longer than it was configured.

run.lock -> config.toml -> store.recover -> checkpoint -> scheduler and measurements -> the run continues
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from dartsim.config import Config, load, to_toml
from dartsim.core.errors import ConfigError, StoreFault
from dartsim.core.files import below, refuse_links
from dartsim.curation.manager import RECORDER, SCHEDULER
from dartsim.observe import Instrument
from dartsim.observe.metrics import read_updates
from dartsim.observe.recording import ATTEMPTS, SEGMENTS, STATES
from dartsim.observe.rundir import (
    CONFIG,
    METRICS,
    SNAPSHOTS,
    STATUS,
    SUMMARY,
    RunDir,
    is_locked,
    lock_run,
    reading,
    refuse_format,
    refuse_locked,
    refuse_other,
    write_text,
)
from dartsim.real.ray_cluster.backend import session
from dartsim.run.execute import (
    SUCCESSES,
    Execution,
    MoreFigures,
    configured_model,
    open_store,
)
from dartsim.run.prepare import prepare_run
from dartsim.run.results import RunResult
from dartsim.run.resume_point import LIVES, SETTINGS, ResumePoint, read_resume_point
from dartsim.store.checkpoints import checkpoint_folders
from dartsim.store.database import CHECKPOINTS_FOLDER, DATABASE_FILE, SCREENS_FOLDER, stored_documents


def resume(
    path: Path,
    overrides: Sequence[str] = (),
    *,
    on_resume: Callable[[Config, ResumePoint | None], None] | None = None,
    instruments: Sequence[Instrument] = (),
    more_figures: MoreFigures | None = None,
) -> tuple[RunDir, RunResult]:
    """Resume a run with its own configuration from its last transaction.

    Args:
        path: The run directory.
        overrides: Changes of its settings (``CHANGEABLE``), such as ``run.hours=48``, its total hours.
        on_resume: Called before the run continues, with its configuration and its resume point (None: not started).
        instruments: Listen to the run.
        more_figures: As for ``execute``.

    Raises:
        ConfigError: If there is no run, it has finished, its store was in memory or is incomplete, a setting changed
            that must not (``CHANGEABLE``), it needs a plug-in (``--plugin``), or another process runs it.
        StoreFault: If its database does not answer.
    """
    config = resumable(path, overrides)
    with session(config):
        prepared = prepare_run(config)
        with lock_run(path):
            before = stored_config(path).model_dump(mode="json")
            # Again: another process may have run it in the meantime.
            config = _resumable(path, overrides)
            store = open_store(config, path)
            with closing(store):
                with reading(path):
                    resume_point = read_resume_point(store, path)
                if on_resume is not None:
                    on_resume(config, resume_point)
                if resume_point is not None:
                    resume_point = replace(resume_point, longer=_longer(config, before))
                    write_text(path / CONFIG, to_toml(config))
                    # Before the model is read, which takes minutes: a process killed in that time counts as a life.
                    lives = [*resume_point.lives, resume_point.as_json()]
                    store.save({LIVES: lives, SETTINGS: config.model_dump(mode="json")})
                    trained = configured_model(prepared, path, restore=resume_point.recovered.checkpoint)
                    execution = Execution(prepared, path, trained, instruments, more_figures)
                    return execution.run(store, resume_point.first, resume_point)
                store.clear()  # documents of a run in which nothing happened
            # The configuration stays, because the process may be killed in the minutes of a model's warm start.
            trained = configured_model(prepared, path)
            return Execution(prepared, path, trained, instruments, more_figures).begin()


def stored_config(path: Path, changes: Sequence[str] = ()) -> Config:
    """Return the configuration of a run, with overrides.

    Raises:
        ConfigError: If the folder is not a run's, or has another format.
    """
    refuse_other(path)
    refuse_links(path)
    if status := _object(path / STATUS):
        refuse_format(path, status)
    return load(path / CONFIG, overrides=changes)


def is_run(path: Path) -> bool:
    """Return whether a folder contains a run, finished or not."""
    return (path / CONFIG).is_file()


def resumable(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Return the configuration of a run; refuse a run that cannot be resumed."""
    if is_locked(path):
        refuse_locked(path)
    with reading(path):
        return _resumable(path, overrides)


def _longer(config: Config, before: Mapping[str, Any] | None) -> bool:
    """Return whether the length or target was changed, so that the run's earlier end no longer applies."""
    now = config.model_dump(mode="json")["run"]
    return before is not None and any(now[key] != before["run"][key] for key in ("hours", "updates", "target_success"))


def _resumable(path: Path, overrides: Sequence[str]) -> Config:
    config = stored_config(path, overrides)
    if config.curation.store == "memory":
        raise ConfigError(
            f'{path} was run with curation.store = "memory": nothing is left; run it again, with "sqlite"'
        )
    documents = _documents(path)
    refuse_changes(config, path, documents.get(SETTINGS))
    if SCHEDULER not in documents:
        return config
    hours, updates = documents[RECORDER]["time"] / 3600.0, documents[SCHEDULER]["update"]
    summary = _object(path / SUMMARY) or {}
    # A summary of an earlier life stays until this one ends.
    ended = bool(summary) and summary.get("lives", []) == documents.get(LIVES, [])
    ended = ended and not (summary.get("interrupted") or summary.get("ended_by_alarm"))
    longer, wanted = _longer(config, documents.get(SETTINGS)), config.run
    too_short = (ended or longer) and wanted.hours <= hours * (1.0 + 1e-9)
    too_few = wanted.updates is not None and (wanted.updates < updates or (ended and wanted.updates == updates))
    if (ended and not longer) or too_short or too_few:
        more = f"--hours {2.0 * max(wanted.hours, hours):.2g}"
        if wanted.updates is not None:
            more += f" --set run.updates={2 * max(wanted.updates, updates)}"
        raise ConfigError(
            f"{path} {'has ended' if ended else 'is'} at {hours:.5g} h and update {updates}; to go on, say how many it "
            f"shall have in all: {more}"
        )
    return config


CHANGEABLE = (
    *("run.hours", "run.updates", "run.target_success", "run.name", "run.fail_on_alarm", "run.keep_attempts"),
    *("trainer.evaluation.every_updates", "trainer.checkpoint_every_updates"),
    *("plugin_modules", "desktop.hosts", "vllm.addresses", "ray.address"),
)
"""Settings and sections that may change when a run is resumed: length, addresses."""


def refuse_changes(config: Config, path: Path, before: Mapping[str, Any] | None) -> None:
    """Refuse settings that do not fit the stored state of a run.

    Args:
        config: The configuration to resume with.
        path: The run directory.
        before: Its last configuration; None: unknown.

    Raises:
        ConfigError: Names the key, the old and the new value.
    """
    if before is None:
        return
    now = dict(_leaves(json.loads(json.dumps(config.model_dump(mode="json")))))
    old = dict(_leaves(before))
    for key in sorted(now.keys() | old.keys()):
        may_change = any(key == own or key.startswith(f"{own}.") for own in CHANGEABLE)
        if not may_change and now.get(key) != old.get(key):
            raise ConfigError(
                f"{key} = {now.get(key)!r}, and {path} began with {old.get(key)!r}: set it back, or begin another run. "
                f"A resume may change {', '.join(CHANGEABLE)}"
            )


def _leaves(tree: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each setting with its dotted key."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{place}{name}.")
        else:
            yield f"{place}{name}", value


WRITTEN = (METRICS, CHECKPOINTS_FOLDER, SUMMARY, SUCCESSES)
"""Files and folders with content only after the first update or the end."""


def _documents(path: Path) -> Mapping[str, Any]:
    """Return the documents of a run's database; empty if it never began.

    Raises:
        ConfigError: If the database is missing, damaged or lacks the newest transactions.
    """
    name = f"{DATABASE_FILE} (with {DATABASE_FILE}-wal)"
    remedy = f"put {name} back as the run left it; nothing was changed"
    try:
        documents = stored_documents(below(path, DATABASE_FILE))
    except StoreFault as fault:
        raise ConfigError(f"{path / DATABASE_FILE} is not what a run wrote: {fault}; {remedy}") from None
    if SCHEDULER in documents:
        _refuse_older(path, documents[SCHEDULER]["update"], remedy)
        return documents
    names = WRITTEN if documents else (*WRITTEN, SNAPSHOTS, SEGMENTS, STATES, ATTEMPTS, SCREENS_FOLDER)
    if written := [name for name in names if _has_content(path / name)]:
        raise ConfigError(
            f"{path} holds what a run has written ({', '.join(written[:3])}), and {name} holds nothing of it: {remedy}"
        )
    return documents


def _refuse_older(path: Path, stored: int, remedy: str) -> None:
    """Refuse a database that is older than the files: a crash costs at most the current update."""
    updates = {"metrics": max((record.update for record in read_updates(path / METRICS)), default=0)}
    folders = checkpoint_folders(path / CHECKPOINTS_FOLDER)
    updates["checkpoints"] = max((int(folder.name.split("-")[1].partition(".")[0]) for folder in folders), default=0)
    for name, newest in updates.items():
        if newest > stored + 1:
            raise ConfigError(
                f"{path} has {name} of update {newest}, and its database ends at update {stored}: {remedy}. To go on "
                f"from update {stored}, move the newer ones elsewhere"
            )


def _has_content(path: Path) -> bool:
    """Whether a path is a file with bytes in it, or a folder with such a file at any depth."""
    if path.is_dir():
        return any(map(_has_content, path.iterdir()))
    return path.is_file() and path.stat().st_size > 0


def _object(path: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError, RecursionError):
        found: Any = json.loads(path.read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else None
    return None
