"""The Python API: ``simulate`` and ``compare`` schedulers in virtual time, as ``dartsim run`` and ``compare`` do."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from io import StringIO
from pathlib import Path
from typing import Any, TypedDict

from rich.console import Console
from typing_extensions import Unpack

from dartsim.config import Config, presets
from dartsim.config.load import Scheduler
from dartsim.config.load import load as load_config
from dartsim.core.errors import ConfigError, NothingTrained
from dartsim.core.plugin_errors import plugin_errors
from dartsim.core.registry import name_of
from dartsim.lab.bounds import bounds
from dartsim.lab.compared_runs import ComparedRun, EndedRun, by_name, make_runs
from dartsim.lab.gate import Comparison, data_frame
from dartsim.lab.virtual import with_settings
from dartsim.observe.figures import intervals
from dartsim.observe.recorder import Recorder
from dartsim.run.execute import run_summary
from dartsim.run.prepare import prepare
from dartsim.run.results import RunResult
from dartsim.run.run_prepared import run_prepared

__all__ = ["Comparison", "Result", "compare", "load", "presets", "simulate"]

Rule = str | type | Mapping[str, Any]
"""A rule of a scheduler: its registered name, its registered class, or a table of its ``rule`` and parameters."""


PLACES = {
    "router": "rollout.routing",
    "lending": "rollout.lending",
    "policy": "policy.agent",
    "advantage": "trainer.objective.advantage",
}
"""Tables that choose a rule, where they are not ``curation.KIND``."""


class RuleChoices(TypedDict, total=False):
    """Rules of a scheduler that replace the configuration's, by kind."""

    router: Rule
    lending: Rule
    admission: Rule
    task_order: Rule
    attempts: Rule
    turn_limit: Rule
    batch: Rule
    selection: Rule
    advantage: Rule
    policy: Rule
    sync_mode: str


def _settings(overrides: Mapping[str, Any] | None, rules: RuleChoices) -> dict[str, Any]:
    """Return rules and other settings by dotted key."""
    settings: dict[str, Any] = {}
    for kind, rule in rules.items():
        name = name_of(kind, rule) if isinstance(rule, type) else rule
        if kind == "sync_mode":
            settings["rollout.sync.mode"] = name
        else:
            settings[PLACES.get(kind, f"curation.{kind}")] = dict(rule) if isinstance(rule, Mapping) else {"rule": name}
    return {**settings, **(overrides or {})}


def load(
    config: Scheduler = "dart",
    *,
    on: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    **rules: Unpack[RuleChoices],
) -> Config:
    """Return a resolved configuration.

    Args:
        config: A preset's name, a TOML file, or a configuration.
        on: The cluster, with its tasks and latencies: a workload's or preset's name, or a TOML file; None: the
            configuration's own.
        overrides: Settings by dotted key, such as ``{"rollout.num_envs": 8}``; see ``dartsim config --list settings``.
        rules: Rules by kind: ``router="session_affine"``, or a registered class. The kinds: router, admission,
            task_order, attempts, turn_limit, batch, selection, advantage, sync_mode, and policy (who acts).

    Raises:
        ConfigError: On an unknown name or key (with the nearest valid one), or a value that cannot work.
    """
    return with_settings(load_config(config, on=on), _settings(overrides, rules))


@dataclass(frozen=True, kw_only=True)
class Result:
    """A simulated run. Rates and shares leave out its first part (``run.warmup_share``).

    Attributes:
        trained_turns_per_minute: Training throughput: distinct turns in finished updates, per simulated minute.
        signal_turns_per_minute: Trained turns of groups whose rewards differ, per minute; others have advantages of 0.
        admitted_turns_per_minute: Turns in batches given to the trainer, per minute.
        generated_turns_per_minute: Turns that engines answered, per minute.
        trajectories_per_minute: Attempts that ended, per minute; None before any has.
        env_utilization: Share of the desktops' time between first request and last observation of attempts, 0 to 1.
        gpu_utilization: Share of the engines' time with a live request, 0 to 1.
        gpu_peak_share: Response tokens over the maximum that the engines could decode, 0 to 1; None if unknown.
        rollout_share: Share of the time during which an attempt runs, 0 to 1.
        trainer_utilization: Share of the time during which the trainer updates, 0 to 1.
        prefix_hit_share: Share of prompt tokens found in prefix caches, 0 to 1; None if unknown.
        minutes_per_version: Simulated minutes per update; None if none finished.
        staleness_mean: Mean staleness of trained turns, versions.
        staleness_max: Largest staleness of a trained trajectory, versions.
        wasted_share: Share of generated turns that no update trained, 0 to 1; None if unknown.
        turns_per_trajectory: Mean turns of an attempt; None if none ended.
        mean_reward: Mean reward of attempts, 0 to 1; None if none was scored.
        num_updates: Finished updates after the warm-up.
        bound_trained_turns_per_minute: Upper bound on the trained turns per minute; None without an update.
        verdict: One line: what limited the run, and what to try.
        event_hash: Hash of all events; equal runs have equal hashes.
        config: The resolved configuration.
        summary: All figures, as in ``summary.json`` of a run directory.
    """

    trained_turns_per_minute: float
    signal_turns_per_minute: float
    admitted_turns_per_minute: float
    generated_turns_per_minute: float
    trajectories_per_minute: float | None
    env_utilization: float
    gpu_utilization: float
    gpu_peak_share: float | None
    rollout_share: float
    trainer_utilization: float
    prefix_hit_share: float | None
    minutes_per_version: float | None
    staleness_mean: float
    staleness_max: int
    wasted_share: float | None
    turns_per_trajectory: float | None
    mean_reward: float | None
    num_updates: int
    bound_trained_turns_per_minute: float | None
    verdict: str
    event_hash: str
    config: Config = field(repr=False)
    summary: Mapping[str, Any] = field(repr=False)
    _run: RunResult = field(repr=False)

    @property
    def recorder(self) -> Recorder:
        """All measurements of the run."""
        return self._run.recorder

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with a row for each interval: hours, rates per minute, utilizations from 0 to 1.

        Raises:
            ConfigError: If pandas is not installed.
        """
        columns = intervals(self.recorder.snapshots)
        hours = {name: columns[name] for name in ("from_hours", "to_hours")}
        return data_frame({**hours, **columns["rates"], **columns["utilization"]})


def simulate(
    config: Scheduler = "dart",
    *,
    on: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    seed: int | None = None,
    **rules: Unpack[RuleChoices],
) -> Result:
    """Simulate a run in virtual time, in this process and in memory; equal arguments give an equal result.

    Args:
        config: A preset's name, a TOML file, or a configuration.
        on: As in ``load``.
        overrides: As in ``load``.
        seed: Seed of all random draws; default: the configuration's.
        rules: As in ``load``.

    Raises:
        ConfigError: As ``load``, or if components are real or a model learns: ``dartsim run`` is for those.
        PlugInFailed: If a rule of your own raises an error.
        NothingTrained: If nothing was trained; its attribute ``result`` is the result of the run.
    """
    resolved_config = load(config, on=on, overrides=overrides, **rules)
    if seed is not None:
        resolved_config = with_settings(resolved_config, {"run.seed": seed})
    with plugin_errors():
        prepared = prepare(_simulated(resolved_config))
        result = run_prepared(prepared)
        if result.interrupted:
            raise KeyboardInterrupt
        summary = run_summary(prepared, result, bounds)
    known = {item.name: summary[item.name] for item in fields(Result) if item.name in summary and item.name != "config"}
    found = Result(**known, config=resolved_config, summary=summary, _run=result)
    if result.failure is not None:
        failed = NothingTrained(result.failure)
        failed.result = found
        raise failed
    return found


def compare(
    schedulers: Iterable[Scheduler] | Mapping[str, Scheduler],
    on: str | Path | None = None,
    *,
    seeds: int | Sequence[int] = 3,
    overrides: Mapping[str, Any] | None = None,
    processes: int = 1,
) -> Comparison:
    """Simulate schedulers on one cluster, each with the same seeds. The result's ``failures`` names those that failed.

    Args:
        schedulers: Presets' names, TOML files, configurations (such as ``load("dart", router=MyRouter)``); or a mapping
            of names to these.
        on: As in ``load``.
        seeds: Number of seeds, from 0; or the seeds.
        overrides: Settings of all of them, as in ``load``.
        processes: Simulations at a time. With more than one, a script needs ``if __name__ == "__main__":``.

    Raises:
        ConfigError: As ``simulate``.
    """
    on = None if on is None else str(on)  # so that ``replay`` can be pasted
    numbers = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    arms: dict[str, tuple[Scheduler, Config]] = {}
    for name, scheduler in by_name(schedulers).items():
        config = _simulated(with_settings(load_config(scheduler, on=on), overrides or {}))
        prepare(config)
        arms[name] = scheduler, config
    ended: dict[str, list[tuple[ComparedRun, EndedRun]]] = {name: [] for name in arms}

    def with_seeds(count: int, names: Collection[str]) -> Comparison:
        start = max(numbers, default=-1) + 1
        numbers.extend(range(start, start + count - len(numbers)))
        left: list[ComparedRun] = []
        for name, (scheduler, config) in arms.items():
            for seed in numbers[len(ended[name]) : count] if name in names else ():
                seeded = with_settings(config, {"run.seed": seed})
                named = name if isinstance(scheduler, Config) else repr(str(scheduler))
                call = f"dartsim.simulate({named}, {on=}, {overrides=}, {seed=})"
                left.append(ComparedRun(name, seeded, call))
        for run, made in zip(left, make_runs(left, Console(file=StringIO()), processes=processes), strict=True):
            ended[run.scheduler].append((run, made))
        pairs = [pair for own in ended.values() for pair in own]
        return Comparison.of([run for run, _ in pairs], [made for _, made in pairs], with_seeds=with_seeds)

    return with_seeds(len(numbers), arms)


def _simulated(config: Config) -> Config:
    """Return a configuration that can be simulated in memory."""
    if not config.backend.virtual or config.policy.kind != "surrogate":
        raise ConfigError(
            f"preset {config.preset!r} has real components or a model that learns; `dartsim run` runs it, and "
            "dartsim.simulate takes presets with a surrogate policy, such as 'dart'"
        )
    return config
