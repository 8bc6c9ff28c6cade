"""``OSWorldEnv``: a desktop with OSWorld's server in it, as a gymnasium environment.

The same interface, spaces and actions as the mock desktop, so that one policy runs on both. It is the synchronous
face of ``OsworldDesktop``, whose coroutines run on a loop of their own in a thread.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import CancelledError
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from gymnasium.error import ResetNeeded

from dartsim.core.errors import EnvBroken, EnvFault
from dartsim.core.types import Observation, Task
from dartsim.envs.actions import make_grammar
from dartsim.envs.base import GuiEnv
from dartsim.real.osworld.connect import DesktopOptions, connect
from dartsim.real.osworld.desktop import OsworldDesktop, Scores
from dartsim.real.osworld.provider import Starter
from dartsim.real.osworld.settings import DesktopSettings
from dartsim.real.osworld.transport import OSWORLD_SERVER, OWN_SERVER, ServerTraits, Timeouts

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from dartsim.real.containers.spec import ContainerSpec

logger = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_AROUND = Task(
    id="look-around",
    instruction="Look around; there is nothing to do here.",
    domain="none",
    spec={"config": [], "evaluator": {"func": "infeasible"}},
)
"""Task of ``reset`` by default."""


class OSWorldEnv(GuiEnv):
    """A real desktop.

    An action is a text in the environment's grammar; ``WAIT``, ``DONE`` and ``FAIL`` are understood in each, and so
    are computer_13's dictionaries. A malformed action changes nothing and is counted. A fault of the desktop is
    raised as ``EnvFault``, never scored; the next ``reset`` then starts or attaches to a desktop afresh.

    Args:
        base_url: Address of the server in a desktop that is up; it is used as it is, and left running. Each episode
            begins where the one before left the desktop.
        container: In place of ``base_url``: the container to start, such as ``desktop_spec()``. Each episode begins in
            a fresh container, on the engine of DOCKER_HOST, or this machine's.
        width: Of the picture that the policy sees, pixels; by default the screen's.
        height: Of the picture that the policy sees, pixels; by default the screen's.
        grammar: Name of an action grammar, see ``dartsim.envs.actions``.
        grammar_options: Its options.
        accessibility: Observe the accessibility tree too.
        settings: All else of how the desktop is shown and waited for, its screen's size first.
        server: Properties of the desktop's server; by default OSWorld's with ``base_url``, our own with ``container``.
        timeouts: Time limits of calls.
        scorer: Scores states; by default with our own metrics only.
        task: Task of ``reset`` by default.
        kwargs: As for ``GuiEnv``.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        container: ContainerSpec | None = None,
        width: int | None = None,
        height: int | None = None,
        grammar: str = "pyautogui",
        grammar_options: Mapping[str, Any] | None = None,
        accessibility: bool = False,
        settings: DesktopSettings = DesktopSettings(),  # noqa: B008 - frozen
        server: ServerTraits | None = None,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - frozen
        scorer: Scores | None = None,
        task: Task | None = None,
        **kwargs: Any,
    ) -> None:
        if (base_url is None) == (container is None):
            raise ValueError("wanted base_url (of a desktop that is up) or container (to start)")
        size = (
            settings.screen[0] if width is None else width,
            settings.screen[1] if height is None else height,
        )
        super().__init__(width=size[0], height=size[1], accessibility=accessibility, task=task or LOOK_AROUND, **kwargs)
        self.settings = replace(
            settings,
            grammar=grammar,
            grammar_options=dict(grammar_options or {}),
            accessibility=accessibility,
            shown=size,
        )
        self.grammar = make_grammar(grammar, *size, **self.settings.grammar_options)
        self._shown: Observation | None = None
        server = server or (OWN_SERVER if base_url is None else OSWORLD_SERVER)
        options = DesktopOptions(settings=self.settings, server=server, timeouts=timeouts, scorer=scorer)
        source = base_url if container is None else Starter(container, options)
        assert source is not None
        self._life = _DesktopThread(source, options)
        # An environment that is never closed still gives its desktop back when it is collected.
        self._finalizer = weakref.finalize(self, self._life.end)

    @property
    def desktop(self) -> OsworldDesktop | None:
        return self._life.desktop

    @property
    def malformed(self) -> int:
        return 0 if self.desktop is None or self.desktop.episode is None else self.desktop.episode.malformed

    def act(self, action: str | Mapping[str, Any]) -> bool:
        """Carry out an action and return whether it was the last.

        Raises:
            ResetNeeded: If no episode runs.
            EnvFault: If the desktop failed.
        """
        if not self._running:
            raise ResetNeeded("the episode is over or has not begun; call reset() first")
        try:
            self._shown, over = self._life.call(lambda desktop: desktop.step(action))
        except BaseException:
            self._running = False
            raise
        self.turns += 1
        assert self.desktop is not None
        assert self.desktop.episode is not None
        self.last_action = self.desktop.episode.last_action
        self._running = not over
        return over

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Carry out an action; ``info`` also has ``malformed``, the count of this episode."""
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, {**info, "malformed": self.malformed}

    def close(self) -> None:
        """Give the desktop back; may be called twice."""
        self._running = False
        self._finalizer()
        super().close()

    def _begin(self, task: Task) -> None:
        seed = int(self.np_random.integers(2**31))
        try:
            self._shown = self._life.call(lambda desktop: desktop.reset(task, seed=seed))
        except BaseException:
            self._running = False
            raise

    def _act(self, action: str) -> None:
        raise NotImplementedError("act does all the work")

    def _observe(self) -> Observation:
        if self._shown is None:
            raise ResetNeeded("there is nothing to see yet; call reset() first")
        return self._shown

    def _score(self) -> float:
        return self._life.call(lambda desktop: desktop.evaluate())


class _DesktopThread:
    """A desktop on a loop in a thread: started when first called, and afresh after a fault.

    It has no reference to the environment, so that this can be garbage-collected, which ends the desktop.
    """

    def __init__(self, source: str | Starter, options: DesktopOptions) -> None:
        self.desktop: OsworldDesktop | None = None
        self._source = source
        self._options = options
        self._stack = ExitStack()
        self._portal: BlockingPortal | None = None
        self._ended = False

    def call(self, ask: Callable[[OsworldDesktop], Awaitable[T]]) -> T:
        """Return what the desktop answers; one that failed is given back."""
        if self._ended:
            raise EnvBroken("the environment was closed; make another")
        try:
            return self._run(lambda: self._ask(ask))
        except EnvFault:
            self._run(self._give_back)
            raise

    def end(self) -> None:
        """Give the desktop back, and end the loop."""
        self._ended = True
        if self._portal is None:
            return
        try:
            self._run(self._give_back)
            if isinstance(self._source, Starter):
                self._run(self._source.close)
        except Exception:
            logger.warning("a desktop could not be given back; its container is left to the reaper", exc_info=True)
        finally:
            self._portal = None
            self._stack.close()

    async def _ask(self, ask: Callable[[OsworldDesktop], Awaitable[T]]) -> T:
        if self.desktop is None:
            source = self._source
            self.desktop = await source() if isinstance(source, Starter) else connect(source, self._options)
        return await ask(self.desktop)

    async def _give_back(self) -> None:
        desktop, self.desktop = self.desktop, None
        if desktop is not None:
            await desktop.close()

    def _run(self, what: Callable[[], Awaitable[T]]) -> T:
        if self._portal is None:
            from anyio.from_thread import start_blocking_portal

            self._portal = self._stack.enter_context(start_blocking_portal(name="dartsim-desktop"))
        future = self._portal.start_task_soon(what)
        try:
            return future.result()
        except CancelledError:
            raise EnvBroken("the call on the desktop was cancelled") from None
        except BaseException:
            future.cancel()  # an interrupt of this thread ends the call there, too
            raise
