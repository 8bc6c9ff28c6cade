"""The recipe of a desktop's image, as data: Debian packages, pinned Python packages, our own files, and its name.

The name has a hash of everything, so an image of another recipe is never mistaken for this one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Variant = Literal["skeleton", "apps", "vm"]
"""``skeleton``: our files over the machine's own ``/usr``; ``apps``: a Debian of its own with OSWorld's applications;
``vm``: a virtual machine with a small Debian."""

SUITE = "bookworm"
SERVER_PORT = 5000
VIEWER_PORT = 8006
HOME = "/home/user"
USER_ID = 1000
RUNTIME = f"/run/user/{USER_ID}"

PACKAGES = (
    # the display, its window manager, and accessibility
    *("xvfb", "xauth", "x11-utils", "openbox", "at-spi2-core", "dbus-daemon", "gir1.2-atspi-2.0", "gir1.2-gtk-3.0"),
    # the server, and what actions and setup commands use
    *("libxcb-randr0", "libxcb-render0", "libxcb-shm0", "libxcb-xfixes0", "python3", "python3-flask", "python3-gi"),
    *("python3-pil", "python3-pyatspi", "python3-tk", "python3-waitress", "python3-xlib", "libglib2.0-bin", "scrot"),
    *("tini", "wmctrl", "xdotool", "xsel"),
    # the applications and how they look
    *("galculator", "mousepad", "thunar", "xterm", "adwaita-icon-theme", "fonts-dejavu-core"),
    *("gsettings-desktop-schemas", "librsvg2-common"),
)
"""Debian packages of every desktop; on the machine itself for ``skeleton``, in the image for the others."""

VIEWER_PACKAGES = ("novnc", "websockify", "x11vnc")
"""Additional packages for ``vnc=True``."""

APPS_PACKAGES = (
    # the session: panel, desktop, terminal, settings, sound, trash
    *("xfce4-panel", "xfdesktop4", "xfconf", "xfce4-pulseaudio-plugin", "gnome-terminal", "gvfs", "pavucontrol"),
    *("dconf-cli", "dconf-gsettings-backend", "gnome-settings-daemon-common", "gnome-shell-common"),
    *("desktop-file-utils", "pulseaudio", "pulseaudio-utils", "shared-mime-info", "xdg-user-dirs", "xdg-utils"),
    # the applications
    *("chromium", "eog", "evince", "gimp", "gtk2-engines-pixbuf", "libatk-adaptor", "libgail-common"),
    *("libreoffice-calc", "libreoffice-gtk3", "libreoffice-impress"),
    *("libreoffice-style-colibre", "libreoffice-writer", "thunderbird", "vlc"),
    # what tasks call, and what documents are written in
    *("bc", "ca-certificates", "curl", "expect", "file", "imagemagick", "jq", "less", "locales", "nano", "procps"),
    *("psmisc", "socat", "sudo", "tzdata", "unzip", "wget", "zip"),
    *("fonts-crosextra-caladea", "fonts-crosextra-carlito", "fonts-liberation", "fonts-wqy-microhei"),
)
"""Additional packages for ``apps``."""

VM_PACKAGES = ("busybox-static", "linux-image-cloud-amd64", "ovmf", "qemu-system-x86", "qemu-utils")
"""Additional packages for ``vm``; the guest and the container share one Debian."""

PYTHON_PACKAGES = (
    "mss==10.2.0",
    "pyautogui==0.9.54",
    "mouseinfo==0.1.3",
    "pymsgbox==2.0.1",
    "pyperclip==1.11.0",
    "pyscreeze==1.0.1",
    "pytweening==1.2.0",
)
"""Pure Python packages that Debian does not have; their other needs are python3-xlib, python3-pil and libxcb."""

ENVIRONMENT = {
    "HOME": HOME,
    "LANG": "C.UTF-8",
    "PATH": "/opt/dartsim/bin:/usr/bin:/bin",
    "PYTHONPATH": "/opt/dartsim:/opt/dartsim/site",
    "GSETTINGS_BACKEND": "keyfile",
}
APPS_ENVIRONMENT = {
    "LANG": "en_US.UTF-8",
    "GSETTINGS_BACKEND": "dconf",
    "GTK_MODULES": "gail:atk-bridge",  # accessibility of GIMP, which is a program of GTK 2
    "XDG_CURRENT_DESKTOP": "XFCE",
}
APPS_PORTS = {"chromium": 9222, "vlc": 8080}
"""Ports that getters of tasks connect to: DevTools behind a relay that tasks start, and VLC's web interface."""
SUDO_CAPABILITIES = ("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
FINISH = "sh /opt/dartsim/finish"
ENTRYPOINT = ("/usr/bin/tini", "-g", "--", "/opt/dartsim/start")
VM_RUN = ("/usr/bin/python3", "/opt/dartsim/vm/run.py")
"""Runs the virtual machine; with other arguments than ``run`` it saves and restores its state."""

_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of an image: a file with its bytes, a link with its target, or a folder with neither."""

    path: str
    data: bytes | None = None
    link: str | None = None
    mode: int = 0o755
    owner: int = 0


def own_entries(variant: Variant) -> list[Entry]:
    """Return our part of an image: the server, the start script, the settings, a user and its home.

    An image of a virtual machine also contains the programs that make and run the machine.
    """
    machine = {"agent.py": 0o644, "disk": 0o755, "init": 0o755, "initrd": 0o755, "run.py": 0o644}
    server = sorted((_HERE / "server").glob("*.py"))
    server_folder = "/opt/dartsim/dartsim/real/desktop/server"
    folders = [server_folder, "/opt/dartsim/bin", "/opt/dartsim/site"]
    homes = [HOME, *(f"{HOME}/{name}" for name in ("Desktop", "Documents", ".config", ".config/openbox"))]
    return [
        *(Entry(folder) for folder in folders),
        *(Entry(f"{server_folder}/{path.name}", path.read_bytes(), mode=0o644) for path in server),
        Entry("/opt/dartsim/finish", _read("finish")),
        Entry("/opt/dartsim/start", _read("start")),
        Entry("/opt/dartsim/panel.py", _read("panel.py"), mode=0o644),
        Entry("/opt/dartsim/bin/panel", _read("panel")),
        Entry("/opt/dartsim/bin/xdg-open", _read("xdg-open")),
        Entry("/opt/dartsim/bin/python", link="/usr/bin/python3"),
        *(Entry(folder, owner=USER_ID) for folder in homes),
        Entry(f"{HOME}/.config/openbox/rc.xml", _read("rc.xml"), mode=0o644, owner=USER_ID),
        Entry(f"{HOME}/.config/mimeapps.list", _read("mimeapps.list"), mode=0o644, owner=USER_ID),
        Entry(RUNTIME, mode=0o700, owner=USER_ID),
        *(_apps_entries() if variant == "apps" else ()),
        *(
            Entry(f"/opt/dartsim/vm/{name}", _read(f"vm-{name}"), mode=mode)
            for name, mode in machine.items()
            if variant == "vm"
        ),
    ]


def _apps_entries() -> list[Entry]:
    """Return the files of the applications' session: what is in ``files/apps``, under its own path."""
    top = _HERE / "files" / "apps"
    entries = [Entry(f"{HOME}/{name}", owner=USER_ID) for name in ("Downloads", "Music", "Pictures", "Videos")]
    for path in sorted(top.rglob("*")):
        name = f"/{path.relative_to(top)}"
        owner = USER_ID if f"{name}/".startswith(f"{HOME}/") else 0
        if path.is_dir():
            entries.append(Entry(name, owner=owner))
        else:
            entries.append(Entry(name, path.read_bytes(), mode=0o755 if "/bin/" in name else 0o644, owner=owner))
    return entries


def all_packages(variant: Variant) -> tuple[str, ...]:
    """Return every Debian package of an image with a Debian of its own; a virtual machine has no viewer."""
    return (*PACKAGES, *(VM_PACKAGES if variant == "vm" else (*VIEWER_PACKAGES, *APPS_PACKAGES)))


def digest_of(entries: Iterable[Entry], **facts: object) -> str:
    """Return 12 hexadecimal digits that change with the contents of an image."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=list).encode())
    for entry in sorted(entries, key=lambda entry: entry.path):
        digest.update(repr((entry.path, entry.link, entry.mode, entry.owner, entry.data)).encode())
    return digest.hexdigest()[:12]


def changes(variant: Variant) -> list[str]:
    """Return the image's settings as instructions of a Dockerfile."""
    user, program = (USER_ID, ENTRYPOINT) if variant != "vm" else (0, (*ENTRYPOINT[:3], *VM_RUN, "run"))
    environment = ENVIRONMENT | (APPS_ENVIRONMENT if variant == "apps" else {})
    return [
        *(f"ENV {name}={value}" for name, value in environment.items()),
        f"USER {user}:{user}",
        f"WORKDIR {HOME}",
        f"ENTRYPOINT {json.dumps(program)}",
        f"EXPOSE {SERVER_PORT}",
    ]


def _read(name: str) -> bytes:
    return (_HERE / "files" / name).read_bytes()
