"""The container of a desktop: an ordinary user without capabilities, within limits."""

from __future__ import annotations

from dartsim.config.schema import DesktopConfig
from dartsim.real.containers.spec import ContainerSpec, container_limits
from dartsim.real.desktop.images import image_name
from dartsim.real.desktop.recipe import SERVER_PORT, VIEWER_PORT


def desktop_spec(
    desktop: DesktopConfig | None = None, *, app: str = "", vnc: bool = False, warm_actions: bool = True
) -> ContainerSpec:
    """Return the container of one desktop of our image.

    Args:
        desktop: Image, screen and limits; None takes the defaults.
        app: A program to start with the desktop, as a shell would read it; "" starts none.
        vnc: Whether a viewer is served: a page on the port named ``vnc``, at ``/vnc.html``.
        warm_actions: Whether ``python -c "import pyautogui …"`` runs in a forked, warm interpreter, which takes
            ``action_pause_seconds``, or in a new one, which always pauses 0.1 s.

    Raises:
        ConfigError: For a skeleton without ``image``, if packages are missing on this machine.
    """
    desktop = desktop or DesktopConfig()
    return ContainerSpec(
        image=desktop.image or image_name(desktop.variant, office=desktop.office),
        environment={
            "WIDTH": str(desktop.width),
            "HEIGHT": str(desktop.height),
            "DESKTOP_APP": app,
            "VNC": str(int(vnc)),
            "WARM_ACTIONS": str(int(warm_actions)),
            "ACTION_PAUSE_SECONDS": str(desktop.action_pause_seconds),
        },
        ports={"server": SERVER_PORT} | ({"vnc": VIEWER_PORT} if vnc else {}),
        volumes={"/usr": "/usr:ro"} if desktop.variant == "skeleton" else {},
        cap_drop=("ALL",),
        security_opt=("no-new-privileges",),
        limits=container_limits(desktop),
    )
