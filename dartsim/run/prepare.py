"""Resolves and checks what a configuration names, before anything starts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from dartsim.config import Config
from dartsim.config.rules import SEEN
from dartsim.core.errors import ConfigError, TaskFileError
from dartsim.core.install import install_command
from dartsim.core.rewards import failed
from dartsim.core.rng import Streams
from dartsim.core.types import Task
from dartsim.envs.mock.suites import SUITES, mock_suite, mock_tasks
from dartsim.envs.tasks import generated_tasks, is_forgeable, load_suite
from dartsim.observe.timings import Entry, read_timings
from dartsim.rollout.warm import fitting_spares
from dartsim.run.backends import desktop_backend
from dartsim.run.model_folder import with_model_folder
from dartsim.run.prepared_run import PreparedRun
from dartsim.sim import SimEnvironment
from dartsim.sim.env_profiles import LATENCIES, NUMBERS, EnvTiming
from dartsim.sim.env_profiles import PROFILES as ENV_PROFILES
from dartsim.sim.faults import active_faults
from dartsim.sim.gpu import PROFILES as GPU_PROFILES
from dartsim.sim.gpu import roofline_profile
from dartsim.sim.host import SimHost, place
from dartsim.sim.latency import Capped, from_spec
from dartsim.sim.prompts import PromptModel
from dartsim.sim.surrogate import RecordedAttempt, RecordedOutcomes
from dartsim.sim.task_difficulties import MEAN_SUCCESS, TaskDifficulty, difficulties

logger = logging.getLogger(__name__)


Supported = Callable[[Sequence[Task]], Sequence[Task]]
"""Returns the tasks that can be set up and scored."""


def prepare(config: Config, *, supported: Supported = lambda tasks: tasks) -> PreparedRun:
    """Resolve everything that a configuration names, with only the supported tasks.

    Raises:
        ConfigError: If a name is unknown, or the desktops do not fit on the hosts.
        TaskFileError: If a task file cannot be used.
    """
    if config.backend.desktop_backend.modeled:
        config = with_fitting_spares(config)
    tasks, held_out = _split(config, _tasks(config), supported)
    gpu_name = config.cluster.engine.gpu
    if gpu_name not in GPU_PROFILES:
        raise ConfigError(f"cluster.engine.gpu = {gpu_name!r} is unknown; known: {', '.join(GPU_PROFILES)}")
    roofline = config.cluster.engine.roofline
    timing = env_timing(config)
    place(config.rollout.num_desktops, hosts(config, SimEnvironment()), timing.memory_gib)  # refuses what does not fit
    active_faults(config.cluster.faults)
    return PreparedRun(
        config=config,
        tasks=tasks,
        held_out=held_out,
        difficulties=_difficulties(config, [*tasks, *held_out]),
        timing=timing,
        gpu=roofline_profile(roofline) if roofline.iteration_seconds else GPU_PROFILES[gpu_name],
        prompts=_prompts(config),
        outcomes=_outcomes(config),
    )


def prepare_run(config: Config, *, trains: bool = True) -> PreparedRun:
    """Prepare a configuration for a run: as ``prepare``, with only the tasks that its desktops can run.

    Raises:
        ConfigError: As ``prepare``, or if the evaluator that tasks need is missing.
        TaskFileError: As ``prepare``, or if tasks cannot run here and ``tasks.unsupported`` refuses them.
    """
    if trains:
        _refuse_training(config)
    refuse_missing_packages(config)
    supported = partial(desktop_backend(config).supported, config)
    return prepare(with_fitting_spares(with_model_folder(config)), supported=supported)


def _refuse_training(config: Config) -> None:
    """Refuse a policy that cannot be trained."""
    if not config.backend.engine_backend.loads_weights:
        raise ConfigError(
            f'backend.workers = "{config.backend.workers}" always serves the same model, which no run can train; '
            "measure it with `dartsim eval`, or set another backend.workers"
        )
    if config.policy.kind == "vlm" and config.policy.temperature == 0.0:
        raise ConfigError(
            "policy.temperature = 0 takes the likeliest tokens, and attempts that are all alike teach nothing; raise "
            "it (DART: 1), and measure the likeliest tokens with `dartsim eval --temperature 0`"
        )


def with_fitting_spares(config: Config) -> Config:
    """Return a configuration with as many of its spare desktops as fit in its hosts' memory; warn if fewer."""
    rollout = config.rollout
    memory = desktop_backend(config).memory_gib(config) if rollout.warm_envs else None
    fitting = rollout.warm_envs if memory is None else fitting_spares(rollout, *memory)
    if fitting == rollout.warm_envs:
        return config
    logger.warning(
        "%d of %d spare desktops (rollout.warm_envs) fit into the memory of the hosts beside %d",
        fitting,
        rollout.warm_envs,
        rollout.num_envs,
    )
    return config.replace(rollout={"warm_envs": fitting})


def refuse_missing_packages(config: Config) -> None:
    """Refuse backends whose packages are not installed, before any slow step.

    Raises:
        ConfigError: With the command that installs them.
    """
    wanted = dict.fromkeys(name for part in config.backend.parts for name in part.packages)
    missing = [name for name in wanted if find_spec(name) is None]
    if missing and config.ray.address is None:  # on Ray, other machines have them
        raise ConfigError(
            f"real desktops and vLLM engines need {', '.join(missing)}, not installed here: {install_command('real')}"
        )


def _outcomes(config: Config) -> RecordedOutcomes | None:
    """Return the outcomes of a recorded run, if they are replayed."""
    path = config.surrogate.outcomes
    if path is None or config.policy.kind != "surrogate":
        return None
    return recorded_outcomes(read_timings(Path(path)))


def _prompts(config: Config) -> PromptModel:
    engine, num_turns = config.cluster.engine, max(100, config.rollout.max_turns)
    if engine.prompt != "gui":
        texts = num_turns if engine.prompt == "dialog" else 0
        alone = PromptModel(
            system_tokens=engine.prompt_tokens, image_tokens=0, max_images=1, max_texts=texts, num_turns=num_turns
        )
        if engine.reply_tokens is None:
            return alone
        reply = Capped(from_spec(engine.reply_tokens), engine.longest_reply_tokens)
        return replace(alone, reply_tokens=round(reply.mean))
    policy = config.policy
    return PromptModel(
        max_images=policy.max_images,
        max_texts=policy.max_texts,
        images_after_cut=policy.images_after_cut,
        num_turns=num_turns,
    )


def env_timing(config: Config) -> EnvTiming:
    """Return the desktops' latency profile with the latencies that the configuration overrides.

    Raises:
        ConfigError: If the profile or a latency is unknown.
    """
    env = config.cluster.env
    if env.profile not in ENV_PROFILES:
        raise ConfigError(f"cluster.env.profile = {env.profile!r} is unknown; known: {', '.join(ENV_PROFILES)}")
    changes: dict[str, Any] = {}
    for name, spec in env.latency.items():
        if name in LATENCIES:
            changes[name] = from_spec(spec)
        elif name in NUMBERS and isinstance(spec, (int, float)):
            changes[name] = float(spec)
        else:
            raise ConfigError(
                f"cluster.env.latency.{name} = {spec!r} is unknown; latencies: {', '.join(LATENCIES)}; "
                f"numbers: {', '.join(NUMBERS)}"
            )
    return replace(ENV_PROFILES[env.profile], **changes)


def reserved_gib(config: Config) -> float:
    """Return the memory of each modeled host that is reserved for saved states of desktops, GiB."""
    backend = config.backend.desktop_backend
    return config.desktop.states_gib if backend.modeled and config.desktop.revert != "boot" else 0.0


def hosts(config: Config, env: SimEnvironment) -> list[SimHost]:
    """Return the hosts of the desktops, without the memory that is reserved for saved states."""
    settings = config.cluster.hosts
    memory_gib = settings.memory_gib - reserved_gib(config)
    return [
        SimHost(
            env,
            cores=settings.slow_cores if number < settings.slow_count else settings.cores,
            memory_gib=memory_gib,
            concurrent_starts=settings.concurrent_starts,
            name=f"host-{number}",
        )
        for number in range(settings.count)
    ]


def _tasks(config: Config) -> Sequence[Task]:
    """Return the tasks of the configured source, without excluded ones."""
    offered, excluded_before = _of_source(config)
    excluded = set(config.tasks.exclude)
    if unknown := sorted(excluded - {task.id for task in offered} - set(excluded_before)):
        raise ConfigError(f"tasks.exclude names {', '.join(unknown)}, which are not among the tasks")
    forgeable = {task.id for task in offered if is_forgeable(task)}
    if forgeable:
        logger.warning(
            "left out %s: the metric runs the agent's answer, which can forge its score", ", ".join(sorted(forgeable))
        )
    left = [task for task in offered if task.id not in excluded | forgeable]
    if not left:
        raise ConfigError(f"none of the tasks of tasks.source = {config.tasks.source!r} is left; see the warnings")
    return left


def _of_source(config: Config) -> tuple[Sequence[Task], Collection[str]]:
    """Return the tasks of the configured source, and the ids that it has already excluded."""
    tasks = config.tasks
    if tasks.source == "generated":
        return generated_tasks(tasks.count), ()
    if tasks.source == "mock":
        return _mock(config, tasks.count, held_out=False), ()
    if tasks.source == "desktop":
        return _desktop(config, tasks.count), ()
    if tasks.source == "gym":
        from dartsim.envs.gym import gym_tasks

        return gym_tasks(config.gym, tasks.count), ()
    assert tasks.folder is not None, "checked by dartsim.config.rules"
    file = Path(tasks.folder) / f"{tasks.list_name}.json"
    if not file.is_file():
        raise TaskFileError(
            f"there is no task list {file}: tasks.folder is a checkout of OSWorld's evaluation_examples; "
            "`dartsim check` lists all that is missing"
        )
    bad: Literal["error", "skip"] = "skip" if tasks.unsupported == "skip" else "error"
    suite = load_suite(Path(tasks.folder), tasks.list_name, missing=bad, bad=bad, exclude=frozenset(tasks.exclude))
    for name, problem in suite.bad.items():
        logger.warning("left out %s: %s", name, problem)
    if not suite.tasks:
        raise TaskFileError(f"{file}: none of its {suite.num_listed} tasks can be read")
    return suite.tasks, suite.excluded


def _split(config: Config, offered: Sequence[Task], supported: Supported) -> tuple[Sequence[Task], Sequence[Task]]:
    """Return the tasks to train on, and those that are only evaluated on: so many of those that can run."""
    settings, tasks = config.tasks, supported(offered)
    if settings.source == "mock":
        return tasks, supported(_mock(config, settings.held_out, held_out=True)) if settings.held_out else ()
    if settings.source == "desktop" and settings.desktop != "apps":
        held_out = _desktop(config, settings.held_out, held_out=True)
        return tasks, supported(held_out) if held_out else ()
    chosen = held_out_ids(tasks, settings.held_out)
    held_out = [task for task in tasks if task.id in chosen]
    train = [task for task in tasks if task.id not in chosen]
    if chosen and not (train and held_out):
        raise ConfigError(
            f"{len(held_out)} of {len(tasks)} tasks would be held out; leave some of both (tasks.held_out)"
        )
    return train, held_out


def held_out_ids(tasks: Sequence[Task], count: int) -> set[str]:
    """Return the ids of tasks to hold out: from each domain in proportion to its size, by the hash of their ids.

    A task that joins or leaves the list changes little of the split.
    """
    domains: dict[str, list[str]] = {}
    for task in tasks:
        domains.setdefault(task.domain, []).append(task.id)
    exact = {domain: count * len(ids) / max(1, len(tasks)) for domain, ids in domains.items()}
    quotas = {domain: int(share) for domain, share in exact.items()}
    missing = min(count, len(tasks)) - sum(quotas.values())
    for domain in sorted(domains, key=lambda name: (quotas[name] - exact[name], name))[:missing]:
        quotas[domain] += 1  # largest remainders
    drawn = {
        domain: sorted(ids, key=lambda task: sha256(f"0/{task}".encode()).digest()) for domain, ids in domains.items()
    }
    return {task for domain, ids in drawn.items() for task in ids[: quotas[domain]]}


def _mock(config: Config, count: int, *, held_out: bool) -> Sequence[Task]:
    tasks, seed = config.tasks, config.run.seed
    if tasks.mock in SUITES:
        return mock_suite(tasks.mock, count, seed, held_out=held_out)
    return mock_tasks(tasks.mock, count, seed, held_out=held_out)


def _desktop(config: Config, count: int, *, held_out: bool = False) -> Sequence[Task]:
    """Return the tasks of our desktop image."""
    from dartsim.real.desktop.tasks.panel import page_tasks, panel_tasks

    generated = {"panel": panel_tasks, "pages": page_tasks}
    name = config.tasks.desktop
    if name not in generated:
        raise ConfigError(f"tasks.desktop = {name!r} is unknown; known: {', '.join(generated)}")
    return generated[name](count, config.run.seed, held_out=held_out)


def _difficulties(config: Config, tasks: Sequence[Task]) -> Mapping[str, TaskDifficulty]:
    """Return the difficulties of tasks for the surrogate policy; a model needs none."""
    if config.policy.kind != "surrogate":
        return {}
    surrogate = config.surrogate
    if config.tasks.source in SEEN:  # the desktops decide success; only the mean is known
        return {task.id: TaskDifficulty(surrogate.mean_success or MEAN_SUCCESS) for task in tasks}
    generated = config.tasks.source == "generated"
    return difficulties(
        tasks,
        Streams(config.run.seed).rng("tasks/difficulty"),
        domains=not generated,
        mean=surrogate.mean_success if generated else None,
        length_sd=surrogate.task_length_sd,
    )


def recorded_outcomes(entries: Iterable[Entry]) -> RecordedOutcomes:
    """Return the outcomes of a run's scored attempts.

    Raises:
        ConfigError: If none was scored.
    """
    ended = (entry for entry in entries if entry["what"] == "attempt" and entry["reward"] is not None)
    return RecordedOutcomes(
        RecordedAttempt(each["group"], each["index"], each["turns"], not failed(each["reward"])) for each in ended
    )
