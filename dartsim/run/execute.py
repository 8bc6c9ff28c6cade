"""Executes a configuration from start to end, and writes all results into one run directory."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import TYPE_CHECKING, Any

from dartsim.config import Config, to_toml
from dartsim.core.errors import ConfigError
from dartsim.core.ports import Store
from dartsim.core.types import Group, Weights
from dartsim.curation.rules.selection import TurnSelection
from dartsim.observe import Instrument
from dartsim.observe.metrics import JsonlWriter, SnapshotLog
from dartsim.observe.recording import ATTEMPTS, SEGMENTS, STATES, AttemptLog, RecordingLog, SegmentLog, StateLog
from dartsim.observe.records import Snapshot
from dartsim.observe.rundir import (
    CONFIG,
    METRICS,
    SNAPSHOTS,
    SUMMARY,
    TOKENS,
    RunDir,
    is_locked,
    lock_run,
    refuse_locked,
    write_bytes,
    write_run,
    write_text,
)
from dartsim.observe.sinks import SINKS, SinkRun, check_sinks
from dartsim.real.ray_cluster.backend import session
from dartsim.run.backends import desktop_backend
from dartsim.run.prepare import prepare_run
from dartsim.run.prepared_run import PreparedRun
from dartsim.run.results import RunResult, learning_curve
from dartsim.run.resume_point import FIRST, SETTINGS, ResumePoint
from dartsim.run.run_prepared import run_prepared
from dartsim.run.verdict import verdict
from dartsim.run.watch import Watch, write_spacing
from dartsim.store.database import CHECKPOINTS_FOLDER, DATABASE_FILE, SCREENS_FOLDER
from dartsim.store.memory import MemoryStore
from dartsim.store.sql import SqlStore
from dartsim.trainer.advantages import AdvantageRule

if TYPE_CHECKING:
    from dartsim.run.model import TrainedModel

SUCCESSES = "successes"
"""Folder of a run's newest successes, if its model learned."""

OWN = (
    *(DATABASE_FILE, METRICS, SNAPSHOTS, ATTEMPTS, STATES, SEGMENTS, TOKENS),
    *(SUCCESSES, CHECKPOINTS_FOLDER, SCREENS_FOLDER),
)
"""Files and folders that must not exist where a run begins."""

MoreFigures = Callable[[PreparedRun, Mapping[str, Any], Sequence[Snapshot]], Mapping[str, Any]]
"""Returns additional figures of a run from its configuration, figures and snapshots."""


def execute(
    config: Config,
    path: Path,
    instruments: Sequence[Instrument] = (),
    more_figures: MoreFigures | None = None,
) -> tuple[RunDir, RunResult]:
    """Run a configuration, and write its run directory.

    Raises:
        ConfigError: If the configuration names something that does not exist, or the directory holds a run already.
        EnvStartFailed: If no container engine answers.
    """
    with session(config):
        prepared = prepare_run(config)
        check_sinks(config.run.sinks)
        refuse_used(path)
        desktop_backend(config).check_hosts(config)
        trained = configured_model(prepared, path)  # may fail, so before the directory exists
        with lock_run(path):
            refuse_used(path, ours=True)  # again: another process may have used it in the meantime
            return Execution(prepared, path, trained, instruments, more_figures).begin()


@dataclass(frozen=True, slots=True)
class Execution:
    """A run in a folder that this process has locked."""

    prepared: PreparedRun
    path: Path
    trained: TrainedModel | None
    instruments: Sequence[Instrument] = ()
    more_figures: MoreFigures | None = None

    def begin(self) -> tuple[RunDir, RunResult]:
        """Run from the start, in an empty folder."""
        config, trained = self.prepared.config, self.trained
        write_text(self.path / CONFIG, to_toml(config))
        with closing(open_store(config, self.path)) as store:
            first = trained.held_out.evaluate(Weights(0, trained.weights.source)) if trained else None
            # Before anything else is written, so that all files belong to a database that has begun.
            store.save({FIRST: first, SETTINGS: config.model_dump(mode="json")})
            if trained:
                write_bytes(self.path / TOKENS, gzip.compress(json.dumps(trained.vlm.vocabulary.texts()).encode()))
            return self.run(store, first)

    def run(
        self, store: Store, first: float | None, resume_point: ResumePoint | None = None
    ) -> tuple[RunDir, RunResult]:
        """Run, and write the folder; ``first`` is the success rate of the first weights on held-out tasks."""
        path, config = self.path, self.prepared.config
        # Updates are appended to those of earlier lives.
        life = 1 if resume_point is None else resume_point.life
        after = None if resume_point is None else resume_point.recovered.update
        sink_run = SinkRun(path, config.name, config.model_dump(mode="json"), life, after or 0)
        with ExitStack() as stack:
            watch = stack.enter_context(Watch(config, path))
            listening: list[Instrument] = [
                stack.enter_context(closing(JsonlWriter(path / METRICS, after=after))),
                *(stack.enter_context(closing(SINKS[name](sink_run))) for name in dict.fromkeys(config.run.sinks)),
                SnapshotLog(path / SNAPSHOTS),
            ]
            listening += [stack.enter_context(closing(log)) for log in recording_logs(config, path, resume_point)]
            listening += [watch, *self.instruments]
            result = run_prepared(
                self.prepared,
                store=store,
                learning=self.trained,
                resume_point=resume_point,
                folder=path,
                instruments=listening,
            )
            watch.interrupted, watch.failure = result.interrupted, result.failure
        more = {} if self.trained is None else self._learned(result, first)
        if resume_point is not None:
            more["lives"] = [*resume_point.lives, resume_point.as_json()]
        run = write_run(
            path,
            config_toml=to_toml(config),
            summary={**run_summary(self.prepared, result, self.more_figures), **more},
            meta=meta(config, result),
        )
        return run, result

    def _learned(self, result: RunResult, first: float | None) -> dict[str, Any]:
        """Write the model and its successes, and return what it learned, for the run's summary."""
        trained, path, recorder = self.trained, self.path, result.recorder
        assert trained is not None
        last = trained.held_out.evaluate(trained.weights)
        trained.save(path)
        trained.save_successes(path / SUCCESSES)
        # The success rates on held-out tasks, where known, replace those of the run's attempts.
        rates = {"success_rate_initial": first, "success_rate_final": last}
        return {
            **{name: rate for name, rate in rates.items() if rate is not None},
            "learning": learning_curve(recorder.snapshots, list(recorder.updates), first, last),
            **trained.figures(),
        }


def recording_logs(config: Config, path: Path, resume_point: ResumePoint | None) -> list[RecordingLog]:
    """Return what writes the files from which a run's page is drawn."""
    if not config.run.max_segments:
        return []
    until = None if resume_point is None else resume_point.seconds
    keep = None if resume_point is None else (resume_point.seconds, resume_point.recovered.update)
    advantages: AdvantageRule = config.trainer.objective.advantage.build()
    selection: TurnSelection = config.curation.selection.build()
    spacing_seconds = write_spacing(config)

    def turn_facts(group: Group) -> tuple[list[list[float]], Sequence[Sequence[bool]]]:
        values = [values_T.tolist() for values_T in advantages.advantages(group)]
        return values, selection.select(group)

    return [
        AttemptLog(path / ATTEMPTS, turn_facts=turn_facts, spacing_seconds=spacing_seconds, keep=keep),
        StateLog(path / STATES, hours=config.run.hours, gather_seconds=spacing_seconds, until=until),
        SegmentLog(path / SEGMENTS, spacing_seconds=spacing_seconds),
    ]


def run_summary(prepared: PreparedRun, result: RunResult, more_figures: MoreFigures | None = None) -> dict[str, Any]:
    """Return all figures of a finished run, as in its ``summary.json``."""
    more = more_figures(prepared, result.figures, result.recorder.snapshots) if more_figures else {}
    config = prepared.config
    return {
        **meta(config, result),
        **result.figures,
        "bias": result.bias,
        "verdict": verdict(config, result.figures),
        **more,
        "config": config.model_dump(mode="json"),
    }


def open_store(config: Config, path: Path) -> Store:
    """Return the configured store of a run.

    Raises:
        StoreFault: If its database cannot be opened.
    """
    if config.curation.store == "memory":
        return MemoryStore()
    learns = config.policy.kind == "vlm"
    # An attempt on a booted desktop takes minutes, so it is written immediately.
    return SqlStore.open(
        path,
        durable=config.backend.boots,
        screenshots=learns,
        checkpoints=learns,
        keep_turns=config.run.keep_attempts,
    )


def configured_model(prepared: PreparedRun, path: Path, *, restore: Path | None = None) -> TrainedModel | None:
    """Return the configured model; None for the surrogate policy."""
    if prepared.config.policy.kind != "vlm":
        return None
    # Imported here: it needs torch.
    from dartsim.run.model import trained_model

    checkpoints = None if prepared.config.curation.store == "memory" else path / CHECKPOINTS_FOLDER
    return trained_model(prepared, checkpoints=checkpoints, restore=restore)


def refuse_used(path: Path, *, ours: bool = False) -> None:
    """Refuse a directory with a run in it; ``ours``: this process has locked it."""
    if not ours and is_locked(path):
        refuse_locked(path)
    if (path / SUMMARY).exists():
        raise ConfigError(f"{path} holds a run already; give another folder with --out, or remove it")
    if (path / CONFIG).exists():
        raise ConfigError(
            f"{path} holds a run that did not come to its end; go on with `dartsim run {path}`, give another folder "
            "with --out, or remove it"
        )
    if found := next((name for name in OWN if (path / name).exists()), None):
        raise ConfigError(f"{path} holds {found}, which a run writes itself; give another folder with --out")


def meta(config: Config, result: RunResult) -> dict[str, Any]:
    """Return the facts that identify a run: names, seed, hashes, versions, and how it ended."""
    return {
        "name": config.name,
        "preset": config.preset,
        "seed": config.run.seed,
        "event_hash": result.event_hash,
        "domain_hash": result.domain_hash,
        "num_events": result.num_events,
        "interrupted": result.interrupted,
        "ended_by_alarm": result.alarm,
        "virtual": config.backend.virtual,
        "surrogate": config.policy.kind == "surrogate" and config.policy.agent.rule == "drawn",
        "versions": {
            "python": python_version(),
            **{name: version(name) for name in ("dartsim", "simpy", "numpy")},
        },
    }
