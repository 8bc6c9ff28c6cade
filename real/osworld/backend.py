"""The configured real desktops of a run: container engines, image, and options."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.core.install import install_command
from dartsim.core.ports import EnvProvider
from dartsim.core.types import Task
from dartsim.real.containers.plan import container_spec, desktop_gib, docker_hosts, refuse_small_hosts

try:
    from dartsim.real.containers import DesktopFleet, DockerHost
    from dartsim.real.containers.errors import ContainerStartFailed
    from dartsim.real.containers.spec import with_token
    from dartsim.real.machine import is_loopback
    from dartsim.real.osworld.connect import DesktopOptions
    from dartsim.real.osworld.coverage import check_task, needs_desktop_env
    from dartsim.real.osworld.fetch import Downloads, cache_folder
    from dartsim.real.osworld.provider import DesktopProvider
    from dartsim.real.osworld.ready import Readiness, SettlingRules
    from dartsim.real.osworld.scorer import Scorer
    from dartsim.real.osworld.settings import DesktopSettings
    from dartsim.real.osworld.snapshots import SavedStates
    from dartsim.real.osworld.transport import OSWORLD_SERVER, OWN_SERVER
    from dartsim.real.scoring.archive import SCORES, ScoreArchive
    from dartsim.real.scoring.container import open_pool
    from dartsim.real.scoring.evaluator_venv import default_home
    from dartsim.real.scoring.pool import SandboxPool
    from dartsim.real.scratch import scratch_folder
except ModuleNotFoundError as missing:
    raise ConfigError(f"real desktops need {missing.name}, which is not installed: {install_command('real')}") from None


CONSOLES = "consoles"
"""Folder of a run, or of the cache, for the console output of desktops that did not start."""
BOOT_SHARE = 0.9
"""Share of a start's time limit after which a desktop that shows no good screen is given up."""


@asynccontextmanager
async def open_desktops(
    config: Config,
    tasks: Sequence[Task],
    on_call: Callable[[int, str, float], None] | None = None,
    *,
    cache: Path | None = None,
    folder: Path | None = None,
) -> AsyncIterator[EnvProvider]:
    """Open the configured engines, remove what earlier runs left there, and provide desktops; at the end none is left.

    Raises:
        ConfigError: If the image or the disk is missing, no engine has room, or the screen has the wrong size.
        EngineMissing: If no engine answers.
    """
    settings = docker_hosts(config.desktop).values()
    hosts = [DockerHost(host) for host in settings]
    spec, token = container_spec(config), ""
    open_hosts = [host for host in settings if not is_loopback(host.bind)]
    if own_server(config) and open_hosts:
        spec, token = with_token(spec)
    async with DesktopFleet(hosts) as fleet:
        if fleet.capacity < config.rollout.num_desktops:
            raise ConfigError(
                f"{config.rollout.num_desktops} desktops are wanted (rollout.num_envs and warm_envs), but the hosts "
                f"take {fleet.capacity}; raise desktop.hosts.NAME.max_desktops or lower the first"
            )
        if config.desktop.variant == "vm":
            refuse_small_hosts(config, [(await host.info()).memory_gib for host in hosts])
        await fleet.require(spec.image)
        archive = None if folder is None else ScoreArchive(folder / SCORES)
        with scratch_folder("states") as states:
            async with open_scorer_pool(config, tasks) as pool:
                cache = cache or cache_folder()
                options = desktop_options(config, cache, Scorer(pool, archive), on_call, token)
                options = replace(options, consoles=(folder or cache) / CONSOLES)
                provider = DesktopProvider(fleet, spec, options, saved=SavedStates(states))
                async with provider.checked(config.rollout.limits.start_seconds):
                    yield provider


def memory_of_hosts(config: Config) -> tuple[list[float], float] | None:
    """Return the memory of each configured engine's machine, and of a desktop, GiB; None if one does not answer."""

    async def ask() -> list[float]:
        async with AsyncExitStack() as stack:
            settings = docker_hosts(config.desktop).values()
            hosts = [await stack.enter_async_context(DockerHost(each)) for each in settings]
            return [info.memory_gib for info in await asyncio.gather(*(host.info() for host in hosts))]

    try:
        return asyncio.run(ask()), desktop_gib(config)
    except ContainerStartFailed:  # the start of the run says so
        return None


def own_server(config: Config) -> bool:
    """Return whether our own server runs on the configured desktops, and not that of somebody's disk."""
    return config.backend.desktops == "desktop" and not config.desktop.own_disk


@asynccontextmanager
async def open_scorer_pool(config: Config, tasks: Sequence[Task]) -> AsyncIterator[SandboxPool]:
    """Provide the sandboxes that score tasks, all started: by ``desktop-env`` if one of them needs it.

    Raises:
        ConfigError: If ``desktop-env`` is not installed.
        EngineMissing: If no Docker engine answers.
        TaskFileError: If a task cannot be set up or scored.
    """
    inside = config.backend.desktops == "osworld" or any(map(needs_desktop_env, tasks))
    async with open_pool(default_home() if inside else None) as pool:
        facts = await pool.facts() if inside else None
        for task in tasks:
            check_task(task, facts)
        await pool.warm()
        yield pool


def desktop_options(
    config: Config,
    cache: Path,
    scorer: Scorer,
    on_call: Callable[[int, str, float], None] | None = None,
    token: str = "",
) -> DesktopOptions:
    """Return the options of the configured desktops; ``token`` is required by their servers."""
    desktop, own = config.desktop, own_server(config)
    settle = desktop.settle
    grammar, options = config.policy.action_grammar
    # A desktop that is not ready says why; the start's own limit does not.
    booted = Readiness(limit_seconds=BOOT_SHARE * config.rollout.limits.start_seconds)
    if own:  # it is painted once its window manager is up, which the server waits for
        booted = replace(booted, quiet_seconds=0.0, poll_seconds=0.1)
    settings = DesktopSettings(
        grammar=grammar,
        grammar_options=options,
        screen=(desktop.width, desktop.height),
        shown=None if config.policy.sees_whole_screen else (config.policy.screen, config.policy.screen),
        settle=SettlingRules(cap_seconds=desktop.max_settle_seconds) if settle == "stable" else settle,
        ready=Readiness() if desktop.ready == "stable" else desktop.ready,
        wait_seconds=desktop.wait_seconds,
        paste=desktop.typing == "paste",
        evaluate_wait_seconds=desktop.evaluate_wait_seconds,
        booted=booted,
    )
    # Task files may refer to files beside them.
    sources = (Path(config.tasks.folder),) if config.tasks.folder is not None else ()
    return DesktopOptions(
        settings=settings,
        server=replace(OWN_SERVER, token=token) if own else OSWORLD_SERVER,
        downloads=Downloads(cache, sources=sources, allowed=desktop.download_hosts),
        scorer=scorer,
        on_call=on_call,
    )
