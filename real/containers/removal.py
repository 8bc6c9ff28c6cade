"""Remove a container for good. Blocking."""

from __future__ import annotations

import time
from typing import Any


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
