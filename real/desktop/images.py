"""Makes the desktop's image, unless it exists: a skeleton in a second, one with its own Debian in minutes."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dartsim.config.schema import DesktopConfig, DockerHostConfig
from dartsim.core.errors import ConfigError
from dartsim.real.containers.engine import connect
from dartsim.real.containers.errors import OWN_REPOSITORY
from dartsim.real.containers.official import DISK_TARGET, EMULATED, check_disk, configured_kvm, on_this_machine
from dartsim.real.containers.spec import ContainerSpec, container_limits
from dartsim.real.desktop.debian import NO_SPACE, debian_image, import_image, in_container, in_thread, make_debian
from dartsim.real.desktop.recipe import (
    APPS_PORTS,
    FINISH,
    PYTHON_PACKAGES,
    SERVER_PORT,
    SUDO_CAPABILITIES,
    SUITE,
    VIEWER_PORT,
    VM_RUN,
    Entry,
    Variant,
    all_packages,
    changes,
    digest_of,
    own_entries,
)
from dartsim.real.desktop.skeleton import machine_entries

logger = logging.getLogger(__name__)

OnLine = Callable[[str], None]
_COMPILE_SECONDS = 120.0
_INSTALL_SECONDS = 300.0
_CALL_SECONDS = 900.0
"""Longest call of an engine while it stores gigabytes, or silence of what installs them."""


def image_name(variant: Variant) -> str:
    """Return the name of the image that the current recipe makes, with a hash of its contents.

    Raises:
        ConfigError: For a skeleton, if packages are missing on this machine.
    """
    entries = own_entries(variant)
    packages: tuple[str, ...] = ()
    if variant == "skeleton":
        entries += machine_entries()
    else:
        packages = all_packages(variant)
    digest = digest_of(entries, python=PYTHON_PACKAGES, debian=packages, suite=SUITE, settings=changes(variant))
    return f"{OWN_REPOSITORY}:{variant}-{digest}"


async def build(
    variant: Variant = "skeleton",
    settings: DockerHostConfig | None = None,
    *,
    again: bool = False,
    on_line: OnLine = logger.info,
) -> str:
    """Make sure that an engine has the image, and return its name.

    Args:
        variant: ``skeleton`` (this machine's ``/usr``, mounted), ``apps`` (a Debian of its own with OSWorld's
            applications) or ``vm`` (a virtual machine).
        settings: The engine; None is the one of DOCKER_HOST, or this machine's.
        again: Whether to rebuild it if it exists.
        on_line: Called with each line about the progress; in another thread unless it is a skeleton.

    Raises:
        ConfigError: If something is missing; the message names it.
        EngineMissing: If no engine answers.
    """
    return await in_thread(_build, variant, settings or DockerHostConfig(), again, on_line)


def _build(variant: Variant, settings: DockerHostConfig, again: bool, on_line: OnLine) -> str:
    if variant == "skeleton" and not settings.local:
        raise ConfigError(f"a skeleton needs this machine's /usr, and the engine is {settings.target}: build `apps`")
    name = image_name(variant)
    client = connect(settings)
    client.api.timeout = _CALL_SECONDS
    try:
        if not again and client.api.images(name=name):
            on_line(f"{name} is there")
            return name
        on_line(f"making {name}")
        make = {"skeleton": _make_skeleton, "apps": _make_apps, "vm": _make_machine}[variant]
        make(client, name, variant, on_line)
        on_line(f"made {name}")
        return name
    except Exception as error:
        if NO_SPACE.search(str(error)):
            raise ConfigError(
                f"no space is left to build {name}: up to 10 GB are needed where the engine keeps its images, and in "
                f"{tempfile.gettempdir()}: {error}"
            ) from error
        raise
    finally:
        client.close()


def _make_skeleton(client: Any, name: str, variant: Variant, on_line: OnLine) -> None:
    entries = compiled([*own_entries(variant), *python_entries(on_line)])
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch, "skeleton.tar")
        archive.write_bytes(to_tar([*machine_entries(), *entries]))
        import_image(client, name, archive, changes(variant))


def _make_apps(client: Any, name: str, variant: Variant, on_line: OnLine) -> None:
    """Lay our files over the packages, which are an image of their own: a change of ours makes a new layer only."""
    ours = to_tar([*own_entries(variant), *python_entries(on_line)])
    base = debian_image(client, all_packages(variant), on_line)
    on_line("adding our files")
    in_container(client, base, FINISH, name, on_line, files=ours, changes=changes(variant))


def _make_machine(client: Any, name: str, variant: Variant, on_line: OnLine) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        own = Path(scratch, "own.tar")
        own.write_bytes(to_tar([*own_entries(variant), *python_entries(on_line)]))
        hooks = (f"tar-in {own} /", f'chroot "$1" {FINISH}', 'sh "$1/opt/dartsim/vm/disk" "$1"')
        archive = make_debian(Path(scratch), all_packages(variant), on_line, hooks=hooks)
        import_image(client, name, archive, changes(variant))


def compiled(entries: Sequence[Entry]) -> list[Entry]:
    """Return entries with the bytecode of their Python files, made by this machine's own interpreter.

    The files of an image never change, so bytecode is not checked against them; a desktop's user must not write it.
    """
    with tempfile.TemporaryDirectory() as scratch:
        for entry in entries:
            if entry.data is not None and entry.path.endswith(".py"):
                path = Path(scratch + entry.path)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(entry.data)
        command = ["/usr/bin/python3", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
        # Some packages contain files for other Python versions, which do not compile.
        subprocess.run(
            [*command, "-s", scratch, "-p", "/", scratch], capture_output=True, timeout=_COMPILE_SECONDS, check=False
        )
        paths = sorted(Path(scratch).rglob("*.pyc"))
        bytecode = [Entry(str(path).removeprefix(scratch), path.read_bytes(), mode=0o644) for path in paths]
    return [*entries, *bytecode]


def to_tar(entries: Iterable[Entry]) -> bytes:
    """Return entries as a tar file: parents before children, no times, owners by number."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in with_parents(entries):
            info = tarfile.TarInfo(entry.path.lstrip("/"))
            info.uid = info.gid = entry.owner
            info.mode = entry.mode
            if entry.link is not None:
                info.type, info.linkname = tarfile.SYMTYPE, entry.link
            elif entry.data is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(entry.data)
            tar.addfile(info, io.BytesIO(entry.data) if entry.data is not None else None)
    return buffer.getvalue()


def with_parents(entries: Iterable[Entry]) -> Sequence[Entry]:
    """Return entries by path, with missing parent folders; of two with the same path the last wins."""
    by_path = {entry.path: entry for entry in entries}
    for path in list(by_path):
        parts = path.split("/")
        for depth in range(2, len(parts)):
            parent = "/".join(parts[:depth])
            by_path.setdefault(parent, Entry(parent))
    return sorted(by_path.values(), key=lambda entry: entry.path)


def python_entries(on_line: Callable[[str], None]) -> list[Entry]:
    """Return the files of the pinned Python packages, which are installed once into the user's cache.

    Raises:
        ConfigError: If pip could not install them.
    """
    folder = _installed(on_line)
    paths = sorted(path for path in folder.rglob("*") if path.suffix != ".pyc" and path.name != "__pycache__")
    return [
        Entry(f"/opt/dartsim/site/{path.relative_to(folder)}", path.read_bytes(), mode=0o644)
        if path.is_file()
        else Entry(f"/opt/dartsim/site/{path.relative_to(folder)}")
        for path in paths
        if not path.relative_to(folder).parts[0].endswith(".dist-info") and path.relative_to(folder).parts[0] != "bin"
    ]


def _installed(on_line: Callable[[str], None]) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dartsim"
    folder = cache / f"desktop-site-{hashlib.sha256(' '.join(PYTHON_PACKAGES).encode()).hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    on_line("installing pyautogui for the desktops")
    cache.mkdir(parents=True, exist_ok=True)
    # Made beside its place and renamed when complete, so an interrupted build leaves nothing that looks finished.
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-compile", "--quiet"]
        command += ["--disable-pip-version-check", "--target", f"{scratch}/site", *PYTHON_PACKAGES]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
        except (OSError, subprocess.SubprocessError) as exc:
            raise ConfigError(f"pip could not install {', '.join(PYTHON_PACKAGES)}: {exc}") from exc
        if done.returncode:
            raise ConfigError(
                f"pip could not install {', '.join(PYTHON_PACKAGES)}, which the desktop's actions use: "
                f"{done.stderr.strip()[-500:]}; see whether `{sys.executable} -m pip download pyautogui` works"
            )
        try:
            Path(scratch, "site").rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was faster
                raise
            shutil.rmtree(Path(scratch, "site"))
    return folder


def desktop_spec(
    desktop: DesktopConfig | None = None,
    *,
    app: str = "",
    vnc: bool = False,
    warm_actions: bool = True,
    look: bool = True,
) -> ContainerSpec:
    """Return the container of one desktop of our image.

    Args:
        desktop: Image, screen and limits; None takes the defaults.
        app: A program to start with the desktop, as a shell would read it; "" starts none.
        vnc: Whether a viewer is served: a page on the port named ``vnc``, at ``/vnc.html``.
        warm_actions: Whether ``python -c "import pyautogui …"`` runs in a forked, warm interpreter, which
            pauses 0.02 s after each call, or in a new one, which pauses 0.1 s.
        look: Whether to check the virtual machine's disk, if the engines are local.

    Raises:
        ConfigError: For a skeleton without ``image``, if packages are missing on this machine; for a virtual machine
            with a viewer, or with too little memory.
    """
    desktop = desktop or DesktopConfig()
    if vnc and desktop.variant == "vm":
        raise ConfigError("the image of a virtual machine has no viewer: leave --vnc out, or take another variant")
    apps = desktop.variant == "apps"
    ports = {"server": SERVER_PORT} | (APPS_PORTS if apps else {})
    spec = ContainerSpec(
        image=desktop.image or image_name(desktop.variant),
        environment={
            "WIDTH": str(desktop.width),
            "HEIGHT": str(desktop.height),
            "DESKTOP_APP": app,
            "VNC": str(int(vnc)),
            "WARM_ACTIONS": str(int(warm_actions)),
        },
        ports=ports | ({"vnc": VIEWER_PORT} if vnc else {}),
        volumes={"/usr": "/usr:ro"} if desktop.variant == "skeleton" else {},
        cap_drop=("ALL",),
        # Tasks use sudo, which needs these capabilities and a way to get them.
        cap_add=SUDO_CAPABILITIES if apps else (),
        security_opt=() if apps else ("no-new-privileges",),
        limits=container_limits(desktop),
    )
    return _machine(spec, desktop, look=look) if desktop.variant == "vm" else spec


QEMU_MIB = 384
"""Memory of a container that its virtual machine does not get: QEMU's own, and a cache of the disk."""
LEAST_RAM_MIB = 512


def _machine(spec: ContainerSpec, desktop: DesktopConfig, *, look: bool) -> ContainerSpec:
    """Return the container of a virtual machine."""
    ram = desktop.memory_mib - QEMU_MIB
    if ram < LEAST_RAM_MIB:
        raise ConfigError(
            f"desktop.memory_mib = {desktop.memory_mib} leaves a virtual machine {ram} MiB, since QEMU itself needs "
            f"{QEMU_MIB}: give at least {LEAST_RAM_MIB + QEMU_MIB}"
        )
    kvm = configured_kvm(desktop)
    size = {
        "RAM_SIZE": f"{ram}M",
        "CPU_CORES": str(max(1, int(desktop.cpus))),
        "KVM": "Y" if kvm else "N",
        "STATES_MIB": str(int(1024 * desktop.states_gib)),
    }
    if desktop.own_disk:
        assert desktop.disk is not None
        disk = Path(desktop.disk)
        if look and on_this_machine(desktop):
            check_disk(disk)
            disk = disk.resolve()
            if not kvm:
                logger.warning(
                    "without KVM %s is emulated: %s; rollout.limits.start_seconds limits its boot", disk, EMULATED
                )
        size["FIRMWARE"] = desktop.firmware
        spec = replace(spec, ports={**spec.ports, **APPS_PORTS}, volumes={str(disk): DISK_TARGET})
    return replace(
        spec,
        environment={**spec.environment, **size},
        shared={"snapshots": "/snapshots"},
        state_command=VM_RUN,
        devices=("/dev/kvm",) if kvm else (),
    )
