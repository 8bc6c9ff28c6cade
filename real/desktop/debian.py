"""Debian with a list of packages, as an image: made by mmdebstrap, or in a container of Debian's own image."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from dartsim.core.errors import ConfigError
from dartsim.real.desktop.recipe import SUITE

DEFAULT_MIRROR = "http://deb.debian.org/debian"
REPOSITORY = "dartsim/debian"
BASE = f"debian:{SUITE}-slim"
"""Where mmdebstrap is missing, packages are installed in a container of this image."""

NO_SPACE = re.compile("no space left|enough free space", re.IGNORECASE)
"""What the system and apt say of a full disk."""

# Manuals and translations are half of the size.
_LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/help/*")
# An interrupted image is made again.
_DPKG_OPTIONS = (*(f"path-exclude={path}" for path in _LEFT_OUT), "force-unsafe-io")
# A kernel's package would make an initial RAM disk, which nothing here uses.
_ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "INITRD": "No"}


T = TypeVar("T")


class _Installation:
    """An installation in a thread."""

    def __init__(self) -> None:
        self.canceled = False
        self.ends: list[Callable[[], object]] = []
        """What ends the program or container that runs."""


_current: ContextVar[_Installation] = ContextVar("installation")


async def in_thread(install: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a thread; if canceled, end what it runs in ``ended_if_canceled``."""
    current = _Installation()
    _current.set(current)
    try:
        return await asyncio.to_thread(install, *arguments)
    except asyncio.CancelledError:
        current.canceled = True
        for end in current.ends[:]:
            with suppress(Exception):  # it may have ended itself
                end()
        raise


@contextmanager
def ended_if_canceled(end: Callable[[], object]) -> Iterator[None]:
    """Call ``end`` if the installation is canceled inside, or was before."""
    current = _current.get(_Installation())
    current.ends.append(end)
    try:
        if current.canceled:
            raise ConfigError("the installation was canceled")
        yield
    finally:
        current.ends.remove(end)


class Lines:
    """Passes on what an installation prints, and remembers its problem: the last line, unless the disk was full."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self.problem = ""

    def add(self, line: str) -> None:
        text = line.strip()
        if text:
            self._on_line(text)
            if not NO_SPACE.search(self.problem):
                self.problem = text


def debian_image(
    client: Any, packages: Sequence[str], on_line: Callable[[str], None], *, base: str | None = None
) -> str:
    """Make sure that an engine has Debian with some packages, and return the image's name.

    ``base`` is the image to install them in; without one mmdebstrap makes their root from nothing, if it is installed.

    Raises:
        ConfigError: If they cannot be installed.
    """
    facts = [SUITE, *_DPKG_OPTIONS, *sorted(packages)]
    name = f"{REPOSITORY}:{SUITE}-{hashlib.sha256(' '.join(facts).encode()).hexdigest()[:12]}"
    if client.api.images(name=name):
        return name
    on_line(f"installing {len(packages)} packages of Debian and what they need")
    if base is None and shutil.which("mmdebstrap"):
        with tempfile.TemporaryDirectory() as scratch:
            import_image(client, name, make_debian(Path(scratch), packages, on_line), [])
        return name
    base = base or BASE
    if not client.api.images(name=base):
        _pull(client, base, on_line)
    in_container(client, base, _install_script(packages), name, on_line, network="host")
    return name


def _pull(client: Any, image: str, on_line: Callable[[str], None]) -> None:
    import docker.errors

    on_line(f"fetching {image}")
    try:
        client.images.pull(image)
    except docker.errors.APIError as error:
        raise ConfigError(
            f"{image} cannot be fetched, and mmdebstrap is missing: {error.explanation or error}",
            "install mmdebstrap (`apt-get install mmdebstrap`), which needs no image registry",
        ) from error


def _install_script(packages: Sequence[str]) -> str:
    sources = f"deb {mirror()} {SUITE} main"
    return "\n".join(
        [
            f"printf '%s\\n' {' '.join(repr(option) for option in _DPKG_OPTIONS)} >/etc/dpkg/dpkg.cfg.d/dartsim",
            f"rm -f /etc/apt/sources.list.d/*; echo '{sources}' >/etc/apt/sources.list",
            "export DEBIAN_FRONTEND=noninteractive",
            "apt-get -q update",
            f"apt-get -q install -y --no-install-recommends {' '.join(packages)}",
            "rm -rf /var/cache/apt/archives/*.deb /var/lib/apt/lists/*",
        ]
    )


def in_container(
    client: Any,
    image: str,
    script: str,
    name: str,
    on_line: Callable[[str], None],
    *,
    files: bytes = b"",
    network: str = "none",
    changes: Sequence[str] = (),
) -> None:
    """Run a shell script as root over an image, and over ``files`` in it, and name the result.

    Raises:
        ConfigError: If it fails.
    """
    container = client.containers.create(image, entrypoint=["sh", "-euc", script], user="0", network_mode=network)
    try:
        if files:
            container.put_archive("/", files)
        container.start()
        lines = Lines(on_line)
        with ended_if_canceled(container.kill):
            for chunk in container.logs(stream=True, follow=True):
                for line in chunk.decode(errors="replace").splitlines():
                    lines.add(line)
        if status := container.wait()["StatusCode"]:
            raise ConfigError(
                f"the packages or files of {name} could not be installed in {image} ({status}): {lines.problem}"
            )
        repository, _, tag = name.partition(":")
        # Without another entry point the image's would be the script.
        settings = ['ENTRYPOINT ["sh"]', *changes]
        client.api.commit(container.id, repository=repository, tag=tag, changes=settings)
    finally:
        container.remove(force=True)


def import_image(client: Any, name: str, archive: Path, changes: Sequence[str]) -> None:
    """Make an image of a root file system as a tar file."""
    repository, _, tag = name.partition(":")
    client.api.import_image_from_file(str(archive), repository=repository, tag=tag, changes=list(changes))


def make_debian(
    scratch: Path, packages: Sequence[str], on_line: Callable[[str], None], *, hooks: Sequence[str] = ()
) -> Path:
    """Make a Debian by mmdebstrap, from this machine's own mirror, as a tar file; return its path.

    ``hooks`` are mmdebstrap's customize hooks.

    Raises:
        ConfigError: If mmdebstrap is missing or failed.
    """
    if shutil.which("mmdebstrap") is None:
        raise ConfigError("this image is made by mmdebstrap, which is missing: type `apt-get install mmdebstrap`")
    archive = scratch / "debian.tar"
    command = [
        *("mmdebstrap", "--variant=minbase", f"--include={','.join(packages)}"),
        *(f"--dpkgopt={option}" for option in _DPKG_OPTIONS),
        # It would empty /etc/machine-id, which D-Bus requires, and /run.
        "--skip=cleanup/reproducible,cleanup/run",
        # Its own cleaning leaves the packages' archives where apt is told to keep them.
        '--customize-hook=rm -rf "$1"/var/cache/apt/archives/*.deb "$1"/var/lib/apt/lists/*',
        *(f"--customize-hook={hook}" for hook in hooks),
        *(SUITE, str(archive), f"deb {mirror()} {SUITE} main"),
    ]
    _run_mmdebstrap(command, on_line)
    return archive


def mirror() -> str:
    """Return the address that this machine's apt takes Debian from, or Debian's own."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(ORIGIN)", "Identifier: Packages"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return DEFAULT_MIRROR
    for line in output.splitlines():
        address, _, rest = line.partition(" ")
        if rest == f"{SUITE} Debian":
            return address.rstrip("/")
    return DEFAULT_MIRROR


def _run_mmdebstrap(command: Sequence[str], on_line: Callable[[str], None]) -> None:
    lines = Lines(on_line)
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, **_ENVIRONMENT},
        start_new_session=True,  # it waits for its own processes, which have to be told, too
    ) as process:

        def end() -> None:
            os.killpg(process.pid, signal.SIGTERM)

        try:
            with ended_if_canceled(end):
                assert process.stdout is not None
                for line in process.stdout:
                    lines.add(line)
        except BaseException:
            end()
            raise
    if process.returncode:
        fix = "it needs root or user namespaces: build the image as root" if "chroot mode" in lines.problem else ""
        raise ConfigError(f"mmdebstrap failed with {process.returncode}: {lines.problem}", fix)
