"""``open_pool``: the sandboxes that this machine can have, for the length of a run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Literal

from dartsim.config.sections.desktop import DockerHostConfig, ScoringConfig
from dartsim.core.errors import ConfigError, DartsimError
from dartsim.real.containers.engine import connect
from dartsim.real.containers.host import DockerHost
from dartsim.real.scoring.bubblewrap import BubblewrapLauncher, ProcessLauncher
from dartsim.real.scoring.container import ContainerLauncher
from dartsim.real.scoring.evaluator_venv import python_of
from dartsim.real.scoring.pool import SandboxPool
from dartsim.real.scoring.sandbox import Launcher, SandboxKind

Choice = Literal["auto", "container", "bubblewrap", "process"]


async def choose(kind: Choice = "auto") -> SandboxKind:
    """Return the strongest kind of sandbox that this machine has, or the one that is wanted."""
    if kind != "auto":
        return SandboxKind(kind)
    if await asyncio.to_thread(_engine_answers):
        return SandboxKind.CONTAINER
    return SandboxKind.BUBBLEWRAP if await _namespaces_work() else SandboxKind.PROCESS


@asynccontextmanager
async def open_pool(
    home: Path | None,
    settings: ScoringConfig = ScoringConfig(),  # noqa: B008 - frozen
) -> AsyncIterator[SandboxPool]:
    """Provide sandboxes; at the end none is left.

    Args:
        home: The evaluator's environment; None for our own metrics.
        settings: Which, how many, and what a call may use. ``auto``: containers, or bubblewrap where no engine is, or
            for our own metrics a process.

    Raises:
        ConfigError: If ``desktop-env`` is to score and is not installed, or there is nothing to keep it apart.
        ScoreFault: If none starts.
    """
    if home is not None:
        python_of(home)
    chosen = await choose(settings.sandbox)
    async with AsyncExitStack() as stack:
        launcher: Launcher
        if chosen is SandboxKind.CONTAINER:
            pool_size = settings.sandboxes or SandboxPool.default_size()
            host = DockerHost(DockerHostConfig(max_desktops=pool_size + 1, concurrent_starts=2), run="scoring")
            stack.push_async_callback(host.close)
            await host.reap()
            launcher = ContainerLauncher(host, home, settings)
        elif chosen is SandboxKind.BUBBLEWRAP:
            launcher = BubblewrapLauncher(home, settings)
        elif home is None:
            launcher = ProcessLauncher(settings)
        else:
            raise ConfigError("desktop-env's metrics read files of an agent: they need a container or bubblewrap")
        yield await stack.enter_async_context(SandboxPool(launcher, size=settings.sandboxes))


def _engine_answers() -> bool:
    settings = DockerHostConfig()
    if not settings.local:
        return False
    try:
        connect(settings).close()
    except DartsimError:
        return False
    return True


async def _namespaces_work() -> bool:
    try:
        return await BubblewrapLauncher(None).works()
    except ConfigError:
        return False
