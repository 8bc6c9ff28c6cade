"""``Part``: one actor of a run, placed and restarted by Ray, with its calls as coroutines.

A function creates the actor's object on its node; its methods may be coroutines. Our errors are re-raised unchanged;
the end of the actor or its node is raised as ``ActorLost``.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from dartsim.core.errors import ConfigError
from dartsim.real.ray_cluster.errors import ActorGone, ActorLost

READY_SECONDS = 120.0
"""Time limit for placing an actor."""
_AGAIN = {"max_task_retries": -1}
"""Options of a call that Ray repeats on a restarted actor."""


def actor_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an actor: those of the configuration, a CPU, and any number of restarts by default."""
    return {"num_cpus": 1, "max_restarts": -1, **options}


def remote_class(body: type, options: dict[str, Any]) -> Any:
    """Return the class of actors with a body and options.

    Raises:
        ConfigError: If Ray refuses the options.
    """
    import ray

    try:
        return ray.remote(body).options(**options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"Ray refuses the options {options}: {error}") from error


class Placement(NamedTuple):
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

    async def place(self) -> Placement:
        import ray

        return Placement(os.getpid(), ray.get_runtime_context().get_node_id(), node_address())

    async def do(self, method: str, *args: Any) -> Any:
        async with self._making:
            if self._object is None:
                self._object = (await self._boxed[0])()
        result = getattr(self._object, method)(*args)
        return await result if inspect.isawaitable(result) else result


class Part:
    """One actor."""

    def __init__(self, name: str, make: Callable[[], object], options: Mapping[str, Any]) -> None:
        import ray

        self.name = name
        self.options = actor_options(options)
        self._make = ray.put(make)  # referenced as long as the actor may be restarted
        kind = remote_class(Hosted, {"scheduling_strategy": "SPREAD", **self.options})
        self._actor: Any = kind.remote([self._make])

    def __repr__(self) -> str:
        return f"<Part {self.name}>"

    async def placed(self, seconds: float = READY_SECONDS) -> Placement:
        """Wait until the actor is placed, again if it was lost, and answers.

        Raises:
            ConfigError: If no node had its resources free in time.
            ActorGone: If it cannot be made.
        """
        try:
            async with asyncio.timeout(seconds):
                return cast(Placement, await self._answer(self._actor.place.options(**_AGAIN).remote()))
        except TimeoutError:
            raise ConfigError(f"{self.name} was not up within {seconds:g} s: {unplaced(self.options)}") from None

    async def call(self, method: str, *args: Any, again: bool = False) -> Any:
        """Call a method of the actor's object, ``again`` if the actor was lost and restarted under the call.

        Canceling the call cancels it in the actor.

        Raises:
            ActorLost: If the actor or its node ended.
            DartsimError: As raised by the method.
        """
        do = self._actor.do.options(**_AGAIN) if again else self._actor.do
        return await self._answer(do.remote(method, *args))

    def send(self, method: str, *args: Any) -> None:
        """Call a method without waiting for it."""
        self._actor.do.remote(method, *args)

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
            raise translated(error, self.name) from error


def translated(error: Exception, name: str) -> Exception:
    """Return the error that a method raised, or ``ActorLost`` if the actor was lost."""
    from ray import exceptions

    cause = getattr(error, "cause", None)
    if isinstance(error, exceptions.RayTaskError) and isinstance(cause, Exception):
        canceled = isinstance(cause, exceptions.TaskCancelledError)
        return ActorLost(f"{name}: the call was canceled in the actor") if canceled else cause
    kind = ActorGone if isinstance(error, exceptions.ActorDiedError) else ActorLost
    return kind(f"{name} ended under the call: {' '.join(str(error).split())[:300]}")


def unplaced(options: dict[str, Any]) -> str:
    """Return the resources that an actor requests, and those of the cluster."""
    import ray

    untyped: Any = ray
    free = {name: amount for name, amount in untyped.available_resources().items() if ":" not in name}
    return f"it asks for {options} on one node, and the cluster has {free} free; lower what it asks for, or add a node"


def node_address() -> str:
    """Return Ray's address of this node."""
    import ray

    untyped: Any = ray.util
    return str(untyped.get_node_ip_address())
