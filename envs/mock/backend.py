"""Mock desktops as a configuration describes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from dartsim.config import Config
from dartsim.config.sections.policy import PolicyConfig
from dartsim.core.ports import EnvProvider
from dartsim.core.types import Task
from dartsim.envs.direct import DirectProvider
from dartsim.envs.mock.env import MockDesktop


def mock_desktop_maker(policy: PolicyConfig) -> Callable[[], MockDesktop]:
    """Return what makes one desktop for a model that sees."""
    grammar, options = policy.action_grammar
    return lambda: MockDesktop(width=policy.screen, height=policy.screen, grammar=grammar, grammar_options=options)


@asynccontextmanager
async def open_desktops(config: Config, tasks: Sequence[Task], on_call: Any = None) -> AsyncIterator[EnvProvider]:
    """Provide mock desktops, computed by the event loop."""
    yield DirectProvider(mock_desktop_maker(config.policy))
