"""Remove what nobody wants any more; leave everybody else's alone. Blocking.

Only what carries our labels is looked at. Of that, a container stays if its owner lives or holds a lease on it
(``leases.wanted``). Of the caller's own containers those stay that it knows of: the others were made by a call whose
answer got lost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Any

from dartsim.real.containers.leases import OWNER, newest_records, wanted
from dartsim.real.containers.owner import Owner


def remove_container(client: Any, name: str, *, seconds: float) -> bool:
    """Kill and remove a container, paused or not, with its anonymous volumes; return whether it was there.

    Args:
        client: Client of the ``docker`` package.
        name: Name or id.
        seconds: How long to wait for a removal that somebody else has begun.

    Raises:
        Exception: What the ``docker`` package raises if the engine cannot be reached or refuses.
    """
    import docker.errors

    deadline = time.monotonic() + seconds
    was_there = False
    while True:
        try:
            client.api.remove_container(name, force=True, v=True)
        except docker.errors.NotFound:
            return was_there
        except docker.errors.APIError as error:
            # 409: a removal is in progress already. The engine has no call to wait for its end on every version.
            if error.status_code != 409 or time.monotonic() > deadline:
                raise
            was_there = True
            time.sleep(0.05)
        else:
            return True


logger = logging.getLogger(__name__)


def count_ours(client: Any) -> int:
    """Return how many containers with our labels, of any owner, the engine has."""
    return len(_containers(client))


def reap(
    client: Any, me: Owner, *, mine: Callable[[], Collection[str]], now: float, seconds: float, everybody: bool = False
) -> int:
    """Remove the containers and lease records nobody wants, and return how many containers were removed.

    Args:
        client: Client of the ``docker`` package.
        me: The caller.
        mine: Returns the names of the containers that the caller holds or is starting. A name must be in it before
            its container is made; it is asked after the engine, so that one being started is never taken for lost.
        now: Engine time, seconds since 1970.
        seconds: Longest wait for one removal.
        everybody: Whether to remove every container of ours, wanted or not, but the caller's own.
    """
    volumes = _records(client)
    records = newest_records(volume["Labels"] for volume in volumes)
    found = _containers(client)
    held = mine()
    removed = 0
    for container in found:
        labels, name = container["Labels"], container["Names"][0].lstrip("/")
        keep = name in held if labels[OWNER] == str(me) else wanted(labels, records, now) and not everybody
        if not keep:
            removed += _remove(client, container["Id"], name, seconds)
    for volume in volumes:
        labels = volume["Labels"]
        if labels[OWNER] != str(me) and not wanted(labels, {}, now):
            _remove_record(client, volume["Name"])
    return removed


def _containers(client: Any) -> list[dict[str, Any]]:
    return list(client.api.containers(all=True, filters={"label": [OWNER]}))


def _records(client: Any) -> list[dict[str, Any]]:
    found = client.api.volumes(filters={"label": [OWNER]})["Volumes"] or []
    return [volume for volume in found if OWNER in (volume["Labels"] or {})]


def _remove(client: Any, identity: str, name: str, seconds: float) -> bool:
    try:
        removed = remove_container(client, identity, seconds=seconds)
    except Exception as error:  # one that cannot be removed must not keep the others
        logger.warning("could not reap container %s: %s", name, error)
        return False
    if removed:
        logger.info("reaped container %s", name)
    return removed


def _remove_record(client: Any, name: str) -> None:
    try:
        client.api.remove_volume(name, force=True)
    except Exception as error:  # somebody else may have been faster; if not, the next reap tries again
        logger.debug("could not remove lease record %s: %s", name, error)
