"""Remove unwanted containers. Blocking.

Only containers with our labels are considered. One stays if its owner wants it (``owner.wanted``). Of
the caller's own containers, those it knows stay; the others were created by a call whose answer was lost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any

from dartsim.real.containers.owner import OWNER, Owner, wanted

logger = logging.getLogger(__name__)


def remove_container(client: Any, name: str, *, seconds: float) -> bool:
    """Kill and remove a container, paused or not, with its anonymous volumes; return whether it was there.

    Raises:
        Exception: As raised by the ``docker`` package if the engine cannot be reached or refuses.
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
            # 409: a removal is in progress already; not every engine can wait for its end.
            if error.status_code != 409 or time.monotonic() > deadline:
                raise
            was_there = True
            time.sleep(0.05)
        else:
            return True


def count_ours(client: Any) -> int:
    """Return the number of containers with our labels, of any owner."""
    return len(_containers(client))


def reap(
    client: Any, me: Owner, *, mine: Callable[[], Collection[str]], seconds: float, everybody: bool = False
) -> int:
    """Remove unwanted containers and volumes, and return the number of containers removed.

    Args:
        client: Client of the ``docker`` package.
        me: The caller.
        mine: Returns the names of the containers that the caller holds or is starting. A name must be in it before
            its container is created. It is called after the engine, so a starting container never counts as lost.
        seconds: Longest wait for one removal.
        everybody: Also remove wanted containers, except the caller's own.
    """
    now = datetime.fromisoformat(client.info()["SystemTime"]).timestamp()  # the engine's clock, as for all ages
    containers = _containers(client)
    held = mine()
    removed = 0
    for container in containers:
        labels, name = container["Labels"], container["Names"][0].lstrip("/")
        wanted_there = wanted(labels, age_seconds=now - container["Created"]) and not everybody
        keep = name in held if labels[OWNER] == str(me) else wanted_there
        if not keep:
            removed += _remove(client, container["Id"], name, seconds)
    for volume in _volumes(client):
        made = datetime.fromisoformat(volume["CreatedAt"]).timestamp()
        if volume["Labels"][OWNER] != str(me) and not wanted(volume["Labels"], age_seconds=now - made):
            _remove_volume(client, volume["Name"])
    return removed


def remove_volumes(client: Any, me: Owner) -> None:
    """Remove the caller's own volumes, which its containers shared."""
    for volume in _volumes(client):
        if volume["Labels"][OWNER] == str(me):
            _remove_volume(client, volume["Name"])


def _containers(client: Any) -> list[dict[str, Any]]:
    return list(client.api.containers(all=True, filters={"label": [OWNER]}))


def _volumes(client: Any) -> list[dict[str, Any]]:
    volumes = client.api.volumes(filters={"label": [OWNER]})["Volumes"] or []
    return [volume for volume in volumes if OWNER in (volume["Labels"] or {})]


def _remove(client: Any, identity: str, name: str, seconds: float) -> bool:
    try:
        removed = remove_container(client, identity, seconds=seconds)
    except Exception as error:  # one failure must not prevent other removals
        logger.warning("could not reap container %s: %s", name, error)
        return False
    if removed:
        logger.info("reaped container %s", name)
    return removed


def _remove_volume(client: Any, name: str) -> None:
    try:
        client.api.remove_volume(name, force=True)
    except Exception as error:  # another client may have removed it; otherwise the next reap retries
        logger.debug("could not remove volume %s: %s", name, error)
