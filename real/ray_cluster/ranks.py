"""``RayRanks``: the ranks of a learner as actors, on as many nodes as Ray places them on.

If one of them ends, all are restarted together, because the others would wait for it forever.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from dartsim.config.sections.trainer import FsdpConfig
from dartsim.core.errors import ConfigError, LearnerFault
from dartsim.real.processes import free_port
from dartsim.real.ray_cluster.parts import actor_options, node_address, remote_class, translated, unplaced


def interface_of(address: str) -> str | None:
    """Return the network interface of this machine that has an address."""
    if address.startswith("127."):
        return "lo"
    found = psutil.net_if_addrs().items()
    return next((name for name, addresses in found if any(each.address == address for each in addresses)), None)


class RankActor:
    """In the actor: one rank."""

    def address(self) -> str:
        """Return where the ranks meet if this is the first one."""
        host = node_address()
        return f"tcp://{host}:{free_port(host)}"

    def join(self, folder: str, rank: int, size: int, meeting: str) -> int:
        """Join the other ranks, and return the process.

        Raises:
            ConfigError: If the learner's folder is not there.
        """
        interface = interface_of(node_address())
        if interface is not None:  # gloo would take the one that the host's name resolves to, often the loopback
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        from dartsim.real.learners.fsdp.files import SETUP, Setup
        from dartsim.real.learners.fsdp.rank import join

        if not (Path(folder) / SETUP).is_file():
            raise ConfigError(
                f"{folder!r} of the learner is not on this node; set trainer.fsdp.folder to a folder of a disk "
                "that all nodes share"
            )
        self._rank = join(Setup.read(Path(folder)), rank, size, meeting)
        return os.getpid()

    def do(self, order: dict[str, Any]) -> dict[str, Any]:
        return self._rank.do(order)


class RayRanks:
    """Actors that carry out orders together, as ``RankGroup`` does with processes of this machine.

    Args:
        folder: Holds what the ranks read at their start; on a disk that all nodes share.
        settings: How many ranks, and the time limit of a start.
        prepare: Called before they are started.
        options: Ray's options of each actor.
    """

    def __init__(
        self, folder: Path, *, settings: FsdpConfig, prepare: Callable[[], None], options: Mapping[str, Any]
    ) -> None:
        self.pids: tuple[int, ...] = ()
        self._folder = folder
        self._settings = settings
        self._prepare = prepare
        self._options = {**actor_options(options), "max_restarts": 0}
        self._actors: list[Any] = []

    @property
    def running(self) -> bool:
        return bool(self._actors)

    def start(self) -> None:
        self.kill()
        self._prepare()
        size = self._settings.ranks
        kind = remote_class(RankActor, self._options)
        self._actors = actors = [kind.remote() for _ in range(size)]
        (meeting,) = self._answers([actors[0].address.remote()], self._settings.start_seconds)
        folder = str(self._folder)
        joining = [actor.join.remote(folder, rank, size, meeting) for rank, actor in enumerate(actors)]
        self.pids = tuple(self._answers(joining, self._settings.start_seconds))

    def ask(self, order: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Give an order and return the answer.

        Raises:
            LearnerFault: If one of them ended or did not answer in time; all have ended then.
        """
        if not self._actors:
            raise LearnerFault("the ranks are not running; start them first")
        answer: dict[str, Any] = self._answers([actor.do.remote(order) for actor in self._actors], seconds)[0]
        return answer

    def _answers(self, references: Sequence[Any], seconds: float) -> list[Any]:
        import ray

        deadline, pending = time.monotonic() + seconds, list(references)
        try:
            while pending:  # the first to fail may be any
                done, pending = ray.wait(pending, timeout=max(0.0, deadline - time.monotonic()))
                if not done:
                    raise LearnerFault(
                        f"{len(pending)} of {len(references)} ranks did not answer within {seconds:g} s; if they are "
                        f"not placed, {unplaced(self._options)}"
                    )
                ray.get(done)
            return list(ray.get(list(references)))
        except BaseException as error:
            self.kill()
            if not isinstance(error, ray.exceptions.RayError):
                raise
            found = translated(error, "a rank of the learner")
            raise found if isinstance(found, ConfigError) else LearnerFault(str(found)) from error

    def kill(self) -> None:
        """End them at once. May be called twice, and from any thread while they compute."""
        import ray

        actors, self._actors, self.pids = self._actors, [], ()
        for actor in actors:
            ray.kill(actor)
