"""``OsworldDesktop``: a desktop with OSWorld's server in it, as the control plane sees one (``AsyncEnv``)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gymnasium.error import ResetNeeded

from dartsim.core.errors import DartsimError, EnvBroken, EnvFault, ScoreUnavailable
from dartsim.core.png import Screenshot, encode_png
from dartsim.core.snapshots import Snapshots
from dartsim.core.types import Observation, StepResult, Task
from dartsim.real.osworld.errors import (
    ActionFailed,
    DesktopLost,
    ServerRestarted,
    VmBadReply,
    WrongScreenAtStart,
    WrongScreenSize,
)
from dartsim.real.osworld.frames import Frame, is_black, resized, same
from dartsim.real.osworld.pyautogui_code import NO_REPEAT, PASTE, Episode, command
from dartsim.real.osworld.ready import (
    WINDOW_QUIET_SECONDS,
    Readiness,
    ScreenMotion,
    SettlingRules,
    settle,
    wait_booted,
    wait_opened,
    wait_set_up,
)
from dartsim.real.osworld.recycle import check_health, open_windows, recycle_server, reload_server
from dartsim.real.osworld.settings import DesktopSettings
from dartsim.real.osworld.steps import launched_programs

if TYPE_CHECKING:
    from dartsim.real.osworld.client import VmClient

logger = logging.getLogger(__name__)

CHANGES_SCREEN = frozenset({"launch", "open", "chrome_open_tabs"})
"""Set-up steps after which the screen is expected to change."""

OnCall = Callable[[str, float], None]
"""Called with the kind and the seconds of each call: boot, revert, setup, ready, step, act, settle, screenshot,
evaluate, recycle, teardown, save, restore. ``step`` includes ``act`` and ``settle``; failed calls are included."""
RunSteps = Callable[[Sequence[Mapping[str, Any]], "VmClient", Any], Awaitable[None]]


class Scores(Protocol):
    """Scores a desktop's current state."""

    async def score(self, task: Task, client: VmClient, where: Any, *, last_action: str | None) -> float:
        """Return a score in [0, 1]; ``where`` is what the set-up had."""
        ...


class OsworldDesktop:
    """One running desktop. Only one call at a time.

    States: *new*, *ready* (has shown a good screen), *running* (an episode), *over*; *lost* after an ``EnvFault``:
    it takes no more calls than ``close``, or ``reset`` if it can be reverted; *closed*.

    Args:
        client: Client of its server.
        run_steps: Carries out a task's set-up steps.
        scorer: Scores a task's state.
        where: Makes the folder of an attempt's files, which set-up and scorer share.
        settings: How it is shown.
        close: Removes the desktop, container and all.
        revert: Replaces the desktop by a fresh one, for a second ``reset``, and returns the new one's client. Without
            it a second task begins on the desktop as the first left it.
        reconnect: Returns a new client of the same address, for a machine that returns to a saved state.
        recycle: Restarts the server inside, and returns once it answers; by default through the server itself.
        on_call: Called with the kind and the duration of each call.
    """

    def __init__(
        self,
        client: VmClient,
        *,
        run_steps: RunSteps,
        scorer: Scores,
        where: Callable[[Task], Any],
        settings: DesktopSettings = DesktopSettings(),  # noqa: B008 - frozen
        close: Callable[[], Awaitable[None]] | None = None,
        revert: Callable[[], Awaitable[VmClient]] | None = None,
        reconnect: Callable[[], VmClient] | None = None,
        recycle: Callable[[VmClient], Awaitable[None]] = recycle_server,
        on_call: OnCall | None = None,
    ) -> None:
        self.client = client
        self.settings = settings
        self.episode: Episode | None = None
        self._run_steps = run_steps
        self._scorer = scorer
        self._where = where
        self._close = close
        self._revert = revert
        self._reconnect = reconnect
        self._recycle = recycle
        self._on_call = on_call
        self._running = False
        self._booted = self._used = self._closed = False
        self._lost: str | None = None
        self._folder: Any = None
        self._forked_from: Path | None = None
        self.snapshots: Snapshots | None = None
        self._seen = (0, 0)
        self._motion = ScreenMotion()
        self._shown: Screenshot | None = None

    async def boot(self) -> None:
        """Wait until the desktop shows a good screen; ``reset`` does this if it was not called before.

        Raises:
            NotReady: If it does not in time.
            WrongScreenAtStart: If its screen has another size than configured.
        """
        with self._timed("boot"):
            try:
                self._sized(await wait_booted(self.client, self.settings.booted))
            except WrongScreenSize as fault:
                raise WrongScreenAtStart(str(fault)) from fault
            with suppress(VmBadReply):  # a desktop without X
                await self.client.execute([self.settings.python, "-c", NO_REPEAT], action=False)
        self._booted = True

    async def reset(self, task: Task, *, seed: int) -> Observation:
        if self._used and self._revert is not None:
            await self._start_afresh(self._revert)
        with self._guarded(f"reset for task {task.id}"):
            if not self._booted:
                await self.boot()
            if self.client.needs_recycle:
                await self._recycled()
            self._used, self._running = True, False
            self._seen = self._server
            self.episode = episode = Episode(task, self.settings)
            self._motion = ScreenMotion()
            frame = await self._set_up(task)
            if task.spec.get("config"):
                await self._check_health()
            self._running = True
            return await self._observed(episode, frame)

    async def step(self, action: str | Mapping[str, Any]) -> StepResult:
        episode = self.episode
        if not self._running or episode is None:
            raise ResetNeeded("the episode is over or has not begun; call reset() first")
        with self._guarded(f"step {str(action)[:100]!r}"), self._timed("step"):
            if self.client.needs_recycle:
                await self._recycle_under_way(episode)
            elif self.client.is_leaking and self.client.can_reload is not False:
                await self._reloaded()
            code = episode.note(action)
            self._running = not episode.over
            if code is None:
                frame = await self._look()
            else:
                await self._act(episode, code)
                frame = await self._settled()
            return StepResult(await self._observed(episode, frame), episode.over)

    async def evaluate(self) -> float:
        episode = self.episode
        if episode is None:
            raise ResetNeeded("there is no task to score yet; call reset() first")
        task = episode.task
        with self._guarded(f"evaluate of task {task.id}"), self._timed("evaluate"):
            await asyncio.sleep(self.settings.evaluate_wait_seconds)
            try:
                score = await self._scorer.score(task, self.client, self._folder, last_action=episode.last_action)
            except DartsimError:
                raise
            except Exception as exc:
                raise ScoreUnavailable(f"task {task.id}: the evaluator failed: {exc!r}") from exc
            await self._check_health()
            self._same_server()
        if not 0.0 <= score <= 1.0:
            raise ScoreUnavailable(f"task {task.id}: the evaluator gave {score}, wanted a number in [0, 1]")
        return score

    async def close(self) -> None:
        if self._closed:
            return
        self._closed, self._running = True, False
        with self._timed("teardown"):
            try:
                await _let_go(self.client.aclose)
            finally:  # also if canceled, or its container would occupy a place of its host until the end of the run
                if self._close is not None:
                    await _let_go(self._close)

    async def _start_afresh(self, revert: Callable[[], Awaitable[VmClient]]) -> None:
        self._running, self._booted, self._lost = False, False, None
        with self._guarded("revert"), self._timed("revert"):
            await self.client.aclose()
            self.client = await revert()
        self._used = False

    @contextmanager
    def saving(self) -> Iterator[Path | None]:
        """Guard the saving of the present state; yields the folder of the attempt's files, None without an attempt."""
        with self._guarded("saving its state"), self._timed("save"):
            yield self._folder.path if self._used else None

    @asynccontextmanager
    async def restoring(self, files: Path | None) -> AsyncIterator[None]:
        """Guard the return to a saved state. ``files`` are those of its set-up, which the next ``reset`` then skips."""
        self._running = self._booted = self._used = False
        with self._guarded("return to a saved state"), self._timed("restore"):
            await self.client.aclose()
            yield
            assert self._reconnect is not None
            self.client = self._reconnect()
            self._forked_from = files

    async def _set_up(self, task: Task) -> Frame:
        """Run a task's steps and return the screen once they show."""
        steps = task.spec.get("config") or []
        self._folder = self._where(task)
        forked_from, self._forked_from = self._forked_from, None
        before = await self._look()
        if forked_from is not None:
            await self._folder.take(forked_from)
            return before
        if not steps:
            return before
        ready = self.settings.ready
        programs = launched_programs(steps) if isinstance(ready, Readiness) else set()
        with self._timed("setup"):
            windows = await open_windows(self.client) if programs else None
            await self._run_steps(steps, self.client, self._folder)
        with self._timed("ready"):
            if not isinstance(ready, Readiness):
                await asyncio.sleep(ready)
                return self._sized(await self.client.frame())
            if programs:
                waited = await wait_opened(self.client, ready, before=windows, count=len(programs))
                ready = replace(ready, quiet_seconds=max(ready.quiet_seconds, min(waited, WINDOW_QUIET_SECONDS)))
            opens = not programs and any(step.get("type") in CHANGES_SCREEN for step in steps)
            before_window = before if opens else None
            return self._sized(await wait_set_up(self.client, ready, before=before_window, motion=self._motion))

    async def _act(self, episode: Episode, parts: Sequence[str | None]) -> None:
        settings = self.settings
        with self._timed("act"):
            for code in parts:
                if code is None:
                    await asyncio.sleep(settings.wait_seconds)
                    continue
                words = command(code, python=settings.python)
                done = await self.client.execute(words, seconds=settings.action_seconds)
                if done.returncode != 0:
                    what = code.removeprefix(PASTE).strip()[:200]
                    raise ActionFailed(f"the desktop could not carry out {what!r}: {_last_line(done.error)}")

    async def _settled(self) -> Frame:
        with self._timed("settle"):
            return self._sized(await settle(self.client, self.settings.settle, self._motion))

    async def _look(self) -> Frame:
        with self._timed("screenshot"):
            frame = await self.client.frame()
        rules = self.settings.settle
        if isinstance(rules, SettlingRules) and is_black(frame, lit_share=rules.lit_share):
            return await self._settled()  # it has as long to show something as after an action
        return self._sized(frame)

    async def _observed(self, episode: Episode, frame: Frame) -> Observation:
        tree = await self.client.accessibility() if self.settings.accessibility else None
        self._same_server()
        shown = self._shown = frame.screenshot
        if self.settings.size != frame.size:
            shown = await asyncio.to_thread(lambda: Screenshot(encode_png(resized(frame.pixels, self.settings.size))))
        return Observation(shown, episode.task.instruction, tree)

    def _sized(self, frame: Frame) -> Frame:
        if frame.size != self.settings.screen:
            (width, height), (wanted_width, wanted_height) = frame.size, self.settings.screen
            raise WrongScreenSize(
                f"{self.client.base_url} has a screen of {width} × {height}, configured is "
                f"{wanted_width} × {wanted_height} (desktop.width, desktop.height)"
            )
        return frame

    @property
    def _server(self) -> tuple[int, int]:
        """What changes when the server is another."""
        return self.client.refusals, self.client.server_starts

    async def _check_health(self) -> None:
        if self.client.server.in_container:
            await check_health(self.client)

    def _same_server(self) -> None:
        """Refuse to continue with a restarted server, because programs that it had launched may have died with it."""
        if self._server != self._seen:
            raise ServerRestarted(f"the server at {self.client.base_url} restarted while an attempt used it")

    async def _reloaded(self) -> None:
        with self._timed("recycle"):
            self.client.can_reload = await reload_server(self.client)
        if self.client.can_reload:
            self._seen = self._server

    async def _recycled(self) -> None:
        with self._timed("recycle"):
            await self._recycle(self.client)

    async def _recycle_under_way(self, episode: Episode) -> None:
        """Restart the server within an episode, and check that no window was lost.

        The screens before and after are compared too, unless the screen changed by itself before.
        """
        rules = self.settings.settle
        still_pixels = (rules if isinstance(rules, SettlingRules) else SettlingRules()).still_pixels
        before = await self._look()
        assert self._shown is not None
        shown = Frame(self._shown, self._shown.pixels)
        stable = not self._motion.changes and same(shown, before, still_pixels=still_pixels)
        windows = await open_windows(self.client)
        await self._recycled()
        self._seen = self._server
        left = await open_windows(self.client)
        lost = frozenset() if windows is None or left is None else windows - left
        if lost:
            change = f"the windows {', '.join(sorted(lost))} of task {episode.task.id} were gone"
        elif stable and not same(before, await self._look(), still_pixels=still_pixels):
            change = f"the screen of task {episode.task.id} had changed"
        else:
            return
        raise ServerRestarted(
            f"the server was restarted after {self.client.server.screenshot_budget} screenshots, and {change} "
            "afterwards; allow fewer turns, or wait a fixed time after each action (desktop.settle)"
        )

    @contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        """Refuse calls of a lost desktop; lose it after a fault; turn an unexpected error into a fault."""
        if self._closed or self._lost is not None:
            raise DesktopLost(f"{what}: the desktop {'is closed' if self._closed else f'broke before ({self._lost})'}")
        try:
            yield
        except (EnvFault, asyncio.CancelledError) as fault:
            self._lose(fault)
            raise
        except (DartsimError, ResetNeeded):
            raise
        except Exception as exc:
            self._lose(exc)
            raise EnvBroken(f"{what}: {exc!r}") from exc

    def _lose(self, fault: BaseException) -> None:
        self._lost = str(getattr(fault, "cause", type(fault).__name__))
        self._running = False

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        if self._on_call is None:
            yield
            return
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            yield
        finally:
            self._on_call(name, loop.time() - began)


async def _let_go(part: Callable[[], Awaitable[None]]) -> None:
    try:
        await part()
    except EnvFault as fault:
        logger.warning("a desktop was not removed, and is left to the reaper: %s", fault)
    except Exception:
        logger.warning("a desktop failed in close; its container is left to the reaper", exc_info=True)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it says nothing"])[-1][:300]
