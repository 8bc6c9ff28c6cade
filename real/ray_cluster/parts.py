"""``Part``: one actor of a run, placed and restarted by Ray, with its calls as coroutines.

A function makes the actor's object where it is placed; its methods may be coroutines. Our errors come back as they were
raised; the end of the actor or its node comes back as ``PartLost``.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from dartsim.config.sections.ray import RayPart
from dartsim.core.backoff import backoff_seconds
from dartsim.core.errors import ConfigError, DartsimError
from dartsim.real.ray_cluster.errors import PartGone, PartLost, portable

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.25
_MAX_POLL_SECONDS = 5.0
_DEAD_ANSWERS = 3
"""Answers in a row that an actor is dead for good before we believe it: it may just be restarting."""


def actor_options(part: RayPart) -> dict[str, Any]:
    """Return a component's resources as options of a Ray actor."""
    options: dict[str, Any] = {
        "num_cpus": part.cpus,
        "num_gpus": part.gpus,  # the actor sees these alone
        "resources": dict(part.resources),
        "max_restarts": part.restarts,
        "max_task_retries": 0,  # no call may be repeated
    }
    if part.memory_gib is not None:
        options["memory"] = int(part.memory_gib * 2**30)
    return options


@dataclass(frozen=True, slots=True)
class ActorFacts:
    """Where an actor runs: its process, Ray's name of the node, and the node's address."""

    pid: int
    node: str
    address: str


class Hosted:
    """The body of every actor: makes an object and calls it.

    Args:
        boxed: A list with the reference of the function that makes the object. In a list, so that Ray does not resolve
            it: an actor's own arguments may be gone from the object store when it restarts.
    """

    def __init__(self, boxed: list[Any]) -> None:
        self._boxed = boxed
        self._making = asyncio.Lock()
        self._object: object | None = None

    async def facts(self) -> ActorFacts:
        import ray

        context = ray.get_runtime_context()
        return ActorFacts(os.getpid(), context.get_node_id(), node_address())

    async def do(self, method: str, *args: Any) -> Any:
        try:
            if self._object is None:
                await self._make()
            result = getattr(self._object, method)(*args)
            return await result if inspect.isawaitable(result) else result
        except DartsimError as error:
            raise portable(error) from None

    async def _make(self) -> None:
        async with self._making:
            if self._object is None:
                make: Callable[[], object] = await self._boxed[0]
                self._object = make()


class Part:
    """One actor."""

    def __init__(self, name: str, make: Callable[[], object], want: RayPart, *, spread: bool = False) -> None:
        import ray

        self.name = name
        self.want = want
        self.restarts_seen = 0
        options = actor_options(want) | ({"scheduling_strategy": "SPREAD"} if spread else {})
        self._make = ray.put(make)  # held while the actor may be restarted
        self._actor: Any = ray.remote(Hosted).options(**options).remote([self._make])

    def __repr__(self) -> str:
        return f"<Part {self.name}>"

    async def placed(self, seconds: float) -> ActorFacts:
        """Wait until the actor was placed and answers.

        Raises:
            ConfigError: If no node had its resources free in time.
            PartGone: If it cannot be made.
        """
        try:
            async with asyncio.timeout(seconds):
                return cast(ActorFacts, await self._answer(self._actor.facts.remote()))
        except TimeoutError:
            raise ConfigError(self._unplaced(seconds)) from None

    async def call(self, method: str, *args: Any) -> Any:
        """Call a method of the actor's object. Canceling the call cancels it in the actor.

        Raises:
            PartLost: If the actor or its node ended.
            DartsimError: As raised by the method.
        """
        return await self._answer(self._actor.do.remote(method, *args))

    def tell(self, method: str, *args: Any) -> None:
        """Call a method without waiting for it."""
        self._actor.do.remote(method, *args)

    async def until_up(self) -> ActorFacts:
        """Wait until a lost actor answers again.

        Raises:
            PartGone: If Ray does not restart it.
        """
        failures, dead = 0, 0
        while True:
            try:
                facts = cast(ActorFacts, await self._answer(self._actor.facts.remote()))
            except PartLost as lost:
                dead = dead + 1 if isinstance(lost, PartGone) else 0
                if dead >= _DEAD_ANSWERS:
                    raise
                failures += 1
                await asyncio.sleep(
                    backoff_seconds(failures, first_seconds=_POLL_SECONDS, max_seconds=_MAX_POLL_SECONDS)
                )
            else:
                self.restarts_seen += 1
                logger.warning("%s is up again: process %d at %s", self.name, facts.pid, facts.address)
                return facts

    def kill(self) -> None:
        import ray

        ray.kill(self._actor, no_restart=True)

    async def _answer(self, reference: Any) -> Any:
        import ray

        try:
            return await asyncio.wrap_future(reference.future())
        except asyncio.CancelledError:
            ray.cancel(reference)
            raise
        except ray.exceptions.RayError as error:
            raise self._read(error) from error

    def _read(self, error: Exception) -> BaseException:
        """Translate an error of Ray."""
        from ray import exceptions

        cause = getattr(error, "cause", None)
        if isinstance(error, exceptions.RayTaskError) and isinstance(cause, Exception):
            lost = isinstance(cause, exceptions.TaskCancelledError)
            return PartLost(f"{self.name}: the call was canceled in the actor") if lost else cause
        kind = PartGone if isinstance(error, exceptions.ActorDiedError) else PartLost
        return kind(f"{self.name} ended under the call: {_first_line(error)}")

    def _unplaced(self, seconds: float) -> str:
        import ray

        untyped: Any = ray
        free, total = untyped.available_resources(), untyped.cluster_resources()
        wanted = {k: v for k, v in actor_options(self.want).items() if k in ("num_cpus", "num_gpus", "memory") and v}
        wanted |= {"resources": dict(self.want.resources)} if self.want.resources else {}
        return (
            f"{self.name} was not up within {seconds:g} s (ray.ready_seconds): it asks for {wanted} on one node, and "
            f"the cluster has {_plain(free)} free of {_plain(total)}; lower what it asks for, or add a node"
        )


def node_address() -> str:
    """Return Ray's address of this node."""
    import ray

    untyped: Any = ray.util
    return str(untyped.get_node_ip_address())


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines)[:300] or repr(error)


def _plain(resources: Mapping[str, float]) -> dict[str, float]:
    """Return resources without those that Ray adds."""
    own = {"memory", "object_store_memory"}
    return {k: v for k, v in sorted(resources.items()) if k not in own and not k.startswith("node:")}
