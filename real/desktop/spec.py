"""The container of a desktop: an ordinary user without capabilities, within limits."""

from __future__ import annotations

from dartsim.real.containers.spec import ContainerLimits, ContainerSpec
from dartsim.real.desktop.images import image_name
from dartsim.real.desktop.recipe import SERVER_PORT, VIEWER_PORT, Variant

MIN_SIDE = 64
"""Smallest width and height that Xvfb and the window manager are started with, pixels."""


def desktop_spec(
    variant: Variant = "skeleton",
    *,
    width: int = 1920,
    height: int = 1080,
    app: str = "",
    vnc: bool = False,
    office: bool = False,
    warm_actions: bool = True,
    action_pause_seconds: float = 0.1,
    memory_mib: int | None = 1024,
    cpus: float | None = None,
    pids: int | None = 512,
    shm_mib: int | None = 64,
    image: str | None = None,
) -> ContainerSpec:
    """Return the container of one desktop.

    Args:
        variant: Which image; ``build`` makes it.
        width: Of the screen, pixels.
        height: Of the screen, pixels.
        app: A program to start with the desktop, as a shell would read it; "" starts none.
        vnc: Whether a viewer is served: a page on the port named ``vnc``, at ``/vnc.html``.
        office: Whether the image is the one with LibreOffice Calc.
        warm_actions: Whether ``python -c "import pyautogui …"`` runs in a forked, warm interpreter or in a new one.
        action_pause_seconds: pyautogui's pause after each of its calls in warm interpreters; its own default, which a
            new interpreter always takes, is 0.1.
        memory_mib: Limit of memory, MiB.
        cpus: Limit of cores.
        pids: Limit of processes and threads.
        shm_mib: Memory for ``/dev/shm``, MiB.
        image: Name of the image; None is the one that today's recipe makes.

    Raises:
        ValueError: If the screen is too small.
        ConfigError: For a skeleton, if packages are missing on this machine.
    """
    if min(width, height) < MIN_SIDE:
        raise ValueError(f"a screen must have at least {MIN_SIDE} pixels each way, got {width} × {height}")
    return ContainerSpec(
        image=image or image_name(variant, office=office),
        environment={
            "WIDTH": str(width),
            "HEIGHT": str(height),
            "DESKTOP_APP": app,
            "VNC": str(int(vnc)),
            "WARM_ACTIONS": str(int(warm_actions)),
            "ACTION_PAUSE_SECONDS": str(action_pause_seconds),
        },
        ports={"server": SERVER_PORT} | ({"vnc": VIEWER_PORT} if vnc else {}),
        volumes={"/usr": "/usr:ro"} if variant == "skeleton" else {},
        cap_drop=("ALL",),
        security_opt=("no-new-privileges",),
        limits=ContainerLimits(memory_mib=memory_mib, cpus=cpus, pids=pids, shm_mib=shm_mib),
    )
