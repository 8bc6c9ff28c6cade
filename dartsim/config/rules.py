"""Rules about combinations of settings; impossible ones are refused before anything starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dartsim.config.schema import Config
from dartsim.core.errors import ConfigError
from dartsim.core.registry import ComponentSection
from dartsim.core.secrets import secret_settings
from dartsim.core.section import Section


def component_rules(section: Section, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield one sentence for each problem with the parameters of a chosen component."""
    for name, value in section:
        if isinstance(value, ComponentSection):
            yield from value.problems(".".join((*path, name)))
        elif isinstance(value, Section):
            yield from component_rules(value, (*path, name))


def broken_rules(config: Config) -> Iterator[str]:
    """Yield one sentence for every rule that the configuration breaks."""
    curation, rollout = config.curation, config.rollout
    batch, attempts = curation.batch, curation.attempts
    if batch.min_groups > batch.max_groups:
        yield (
            f"curation.batch.min_groups = {batch.min_groups} is more than curation.batch.max_groups = "
            f"{batch.max_groups}: no batch could be large enough. Lower the first or raise the second."
        )
    smallest = attempts.smallest_group
    if curation.groups.min_size > smallest:
        yield (
            f"curation.groups.min_size = {curation.groups.min_size} is more than the {smallest} attempts a "
            "task can get: such groups would always be dropped. Lower it, or raise curation.attempts."
        )
    yield from scheduler_rules(config)
    if rollout.lockstep and rollout.sync.workers_at_a_time != "all" and not config.trainer.wait_for_sync:
        yield (
            "rollout.lockstep asks all desktops' turns at once, so weights cannot change under it worker by "
            'worker. Set rollout.sync.workers_at_a_time = "all" or trainer.wait_for_sync = true.'
        )
    policy = config.policy
    if policy.images_after_cut is not None and policy.images_after_cut > policy.max_images:
        yield (
            f"policy.images_after_cut = {policy.images_after_cut} is more than policy.max_images = "
            f"{policy.max_images}: nothing would be cut. Set policy.images_after_cut = {policy.max_images} or less."
        )
    if config.tasks.source == "gym" and config.gym.env is None:
        yield ('tasks.source = "gym" needs gym.env: "package.module:Class", or an id of gymnasium\'s registry (--env).')
    if config.tasks.source == "osworld" and config.tasks.folder is None:
        yield 'tasks.source = "osworld" needs tasks.folder, the folder of test_all.json and examples/.'
    tasks = config.tasks
    if tasks.source == "generated" and tasks.held_out:
        yield (
            f'tasks.held_out = {tasks.held_out} of tasks.source = "generated" cannot be evaluated on: they have no '
            "content. Set tasks.held_out = 0, or another source."
        )
    if tasks.source == "generated" and tasks.folder is not None:
        yield 'tasks.folder is given, but tasks.source = "generated". Set tasks.source = "osworld" to use it.'


def groups_of_publication(config: Config) -> int:
    """Return the most groups that updates need before a publication: largest batches, then a smallest one."""
    return (config.trainer.publish_every - 1) * largest_batch(config) + config.curation.batch.min_groups


def largest_batch(config: Config) -> int:
    """Return the largest possible batch, groups: no more than may wait for it."""
    size, waiting = config.curation.batch.max_groups, config.curation.admission.waiting_batches
    return size if waiting is None else min(size, round(waiting * size))


def scheduler_rules(config: Config) -> Iterator[str]:
    """Yield one sentence for each scheduling rule that would wait forever, or never apply."""
    curation, trainer, sync = config.curation, config.trainer, config.rollout.sync
    size, admission, needed = curation.batch.max_groups, curation.admission, curation.batch.min_groups
    updates, bound = trainer.publish_every, curation.staleness.max_staleness
    if bound is not None and bound < updates - 1:
        yield (
            f"curation.staleness.max_staleness = {bound} is too small for trainer.publish_every = {updates}: before "
            f"the last update of a publication the trainer is {updates - 1} versions ahead of all workers, and what "
            "they make would be dropped as stale: the trainer would wait forever. Raise the first to at least "
            f"{updates - 1}, or lower the second."
        )
    ahead = groups_of_publication(config)
    if trainer.publish_wait == "batch":  # the next batch is complete before the last ones are published
        ahead += largest_batch(config)
    for name, batches, wanted in (
        ("ahead_batches", admission.ahead_batches, ahead),
        ("waiting_batches", admission.waiting_batches, needed),
        ("open_batches", admission.open_batches, 1),
        ("ready_batches", admission.ready_batches, needed),
    ):
        if batches is not None and round(batches * size) < wanted:
            yield (
                f"curation.admission.{name} = {batches:g} admits {round(batches * size)} groups (of "
                f"curation.batch.max_groups = {size}), and {wanted} are needed before the next publication: the "
                f"trainer would wait forever. Set it to at least {wanted / size:g}."
            )
    if trainer.publish_wait == "batch" and (
        admission.waiting_batches is None or (bound is not None and bound < updates)
    ):
        yield (
            'trainer.publish_wait = "batch" waits until the next batch is whole and nothing runs: it needs '
            f"curation.admission.waiting_batches, and curation.staleness.max_staleness of at least {updates} or none."
        )
    age = curation.batch.wait_age
    if age is not None and age < updates:
        yield (
            f"curation.batch.wait_age = {age} waits for groups begun {age} versions ago, and before the last update of "
            f"a publication (trainer.publish_every = {updates}) every group that begins is {updates - 1} versions old: "
            f"the trainer would wait forever. Set the first to at least {updates}."
        )
    if curation.staleness.cancel_running and (bound is None or curation.staleness.measured_by != "start"):
        yield (
            "curation.staleness.cancel_running knows only by their start which attempts are too old: set "
            'curation.staleness.measured_by = "start" and a curation.staleness.max_staleness.'
        )
    if admission.rule == "cache_use" and not config.backend.virtual:
        yield (
            'curation.admission.rule = "cache_use" reads how full the caches of engines are, and only those of '
            'modeled engines in virtual time can be read. Set curation.admission.rule = "bounds".'
        )
    lent = config.rollout.lending.engines
    if lent and not config.backend.engine_backend.can_release:
        yield (
            f"rollout.lending.engines = {lent} needs engines that give their GPUs back, and those of backend.workers = "
            f'"{config.backend.workers}" do not. Set rollout.lending.engines = 0.'
        )
    for name in ("ready_batches", "waiting_batches"):
        batches, wanted = getattr(admission, name), needed * updates
        if lent and batches is not None and round(batches * size) < wanted:
            yield (
                f"rollout.lending.engines = {lent} may wait until {wanted} groups are ready, and "
                f"curation.admission.{name} = {batches:g} lets no more than {round(batches * size)} be: the trainer "
                f"would wait forever. Set it to at least {wanted / size:g}, or to none."
            )
    tasks = curation.task_filter
    if tasks.min_mean > tasks.max_mean:
        yield (
            f"curation.task_filter.min_mean = {tasks.min_mean:g} is more than curation.task_filter.max_mean = "
            f"{tasks.max_mean:g}: every task would be left out. Lower the first."
        )
    if sync.resume_seconds is not None and (
        not sync.sync_mode.keeps_requests or not config.backend.engine_backend.modeled
    ):
        yield (
            f'rollout.sync.resume_seconds = {sync.resume_seconds:g} needs rollout.sync.mode = "keep" and '
            'backend.workers = "sim". Set it to "none".'
        )


SEEN = ("mock", "gym")
"""Sources of tasks whose desktops show a screen without being booted."""


def policy_rules(config: Config) -> Iterator[str]:
    """Yield one sentence for each broken rule about the policy."""
    policy, source = config.policy.kind, config.tasks.source
    surrogate = config.surrogate
    for mean, sd in (surrogate.turns(success=True), surrogate.turns(success=False)):
        if sd / mean < surrogate.task_length_sd:
            yield (
                f"attempts of sd {sd:g} about a mean of {mean:g} turns vary less than their tasks alone, whose length "
                f"factors have sd {surrogate.task_length_sd:g}; raise the sd, or lower surrogate.task_length_sd."
            )
    real_desktops = config.backend.boots
    drawn = policy == "surrogate" and config.policy.agent.rule == "drawn"
    if not real_desktops and ((drawn and source in SEEN) or (policy == "vlm" and source not in SEEN)):
        yield (
            f'policy.kind = "{policy}" does not go with tasks.source = "{source}": a model that sees needs the mock '
            'desktop ("vlm" with "mock") or a gymnasium environment ("gym"), as does a policy of your own (--plugin '
            "MODULE, policy.agent.rule = NAME); a surrogate draws outcomes of the other tasks. Change one of them."
        )
    measured = policy == "vlm" and config.tasks.held_out and config.trainer.evaluation.every_updates
    if config.run.target_success is not None and not measured:
        yield (
            f"run.target_success = {config.run.target_success} is never measured: it needs policy.kind = "
            '"vlm", tasks.held_out of at least 1, and trainer.evaluation.every_updates.'
        )
    needs_model = config.backend.engine_backend.loads_weights and config.policy.model is None
    if config.policy.grammar == "ui_tars" and (policy != "vlm" or needs_model):
        yield (
            'policy.grammar = "ui_tars" is free text, which random weights do not write: set policy.kind = "vlm" and '
            "policy.model to a checkpoint's folder."
        )
    pool = config.curation.pool
    if pool.file is not None and not (pool.enabled and policy == "vlm"):
        yield (
            f'curation.pool.file = "{pool.file}" would never be used: it needs curation.pool.enabled = true and '
            'policy.kind = "vlm".'
        )


def backend_rules(config: Config) -> Iterator[str]:
    """Yield one sentence for each broken rule about the backends."""
    backend, source = config.backend, config.tasks.source
    faults = config.cluster.faults
    if not backend.virtual and (faults.profile != "none" or faults.kinds or faults.schedule):
        yield (
            f'cluster.faults.profile = "{faults.profile}" (or its kinds, or its schedule) needs a modeled cluster in '
            'virtual time, and some components of this run take real time. Set cluster.faults.profile = "none".'
        )
    sources = backend.desktop_backend.task_sources
    if sources is not None and source not in sources:
        yield (
            f'backend.desktops = "{backend.desktops}" cannot show tasks.source = "{source}"; set tasks.source to '
            f"{' or '.join(map(repr, sources))}."
        )
    if not (backend.engine_backend.modeled and backend.learner_backend.modeled) and config.policy.kind != "vlm":
        yield (
            f'backend.workers = "{backend.workers}" and backend.learner = "{backend.learner}" need a model: set '
            'policy.kind = "vlm", or both to "sim".'
        )
    if backend.boots and config.policy.kind != "vlm":
        yield f'backend.desktops = "{backend.desktops}" needs a model that sees: set policy.kind = "vlm".'
    for part in backend.parts:
        yield from part.problems(config)


def revert_rules(config: Config) -> Iterator[str]:
    """Yield one sentence for each broken rule about desktops that return to saved states."""
    revert, backend = config.desktop.revert, config.backend
    if revert == "boot":
        return
    if not backend.desktop_backend.saves_states(config):
        yield (
            f'desktop.revert = "{revert}" needs desktops that save their state, and those of backend.desktops = '
            f'"{backend.desktops}" with tasks.source = "{config.tasks.source}" do not: '
            f'{backend.desktop_backend.no_states}. Set desktop.revert = "boot".'
        )
    elif config.rollout.warm_envs:
        yield (
            f"rollout.warm_envs = {config.rollout.warm_envs} spares would never be used with desktop.revert = "
            f'"{revert}", whose desktops do not boot between attempts. Set rollout.warm_envs = 0.'
        )
    if config.ray.address is not None and not config.desktop.hosts and not backend.desktop_backend.modeled:
        yield (
            f'desktop.revert = "{revert}" does not reach desktops that Ray places. Name Docker hosts in desktop.hosts, '
            'or set desktop.revert = "boot".'
        )


def refuse_secrets(tree: Mapping[str, Any]) -> None:
    """Refuse settings that contain a secret.

    Raises:
        ConfigError: Naming their keys.
    """
    if keys := secret_settings(tree):
        raise ConfigError(
            f"{', '.join(keys)} holds a password or a token, which would be written to config.toml and reports. Leave "
            "it out; secrets come from the environment (HF_TOKEN, VLLM_API_KEY)."
        )


def check(config: Config) -> Config:
    """Return the configuration if it breaks no rule.

    Raises:
        ConfigError: Naming every broken rule.
    """
    broken = [
        *component_rules(config),
        *broken_rules(config),
        *policy_rules(config),
        *backend_rules(config),
        *revert_rules(config),
    ]
    if broken:
        raise ConfigError("the configuration cannot work:\n" + "\n".join(f"  - {rule}" for rule in broken))
    return config
