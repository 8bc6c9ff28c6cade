"""Sandboxes as containers on this machine's Docker engine.

The image holds links, a user and our supervisor; ``/usr``, the interpreter and the evaluator's environment are mounted
read-only from this machine, whose engine it has to be.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from dartsim.config.sections.desktop import DockerHostConfig, ScoringConfig
from dartsim.core.errors import ConfigError, EnvStartFailed
from dartsim.real.containers.engine import connect
from dartsim.real.containers.host import DockerHost
from dartsim.real.containers.spec import ContainerLimits, ContainerSpec
from dartsim.real.scoring.bubblewrap import ENVIRONMENT, INSIDE, SCORING, SCRATCH, functions_of
from dartsim.real.scoring.sandbox import (
    CODE,
    MAX_PIDS,
    LaunchedSupervisor,
    SandboxKind,
    ScoreFault,
    supervisor_command,
)

REPOSITORY = "dartsim/scorer"
NOBODY = 65534
MAX_INODES = 20_000
LOADED_MIB = 512
"""Memory of the loaded functions, MiB."""
_FOLDERS = ("dev", "driver", "etc", "evaluator", "proc", "scoring", "scratch", "sys", "usr")
_COPIED = ("/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types")


class ContainerLauncher:
    """Starts supervisors in containers.

    Raises:
        ConfigError: If the engine is another machine's, or there is no such environment.
    """

    kind = SandboxKind.CONTAINER

    def __init__(
        self,
        host: DockerHost,
        home: Path | None,
        limits: ScoringConfig = ScoringConfig(),  # noqa: B008 - frozen
    ) -> None:
        if not host.settings.local:
            raise ConfigError(f"scores want an engine of this machine, found {host.settings.target}")
        self.limits = limits
        self._host = host
        self._python, self._folders = functions_of(home)
        self._functions = "own" if home is None else "desktop-env"
        self._image: asyncio.Task[str] | None = None

    async def launch(self, link: Path) -> LaunchedSupervisor:
        if self._image is None:
            self._image = asyncio.create_task(asyncio.to_thread(build_image, self._host.settings))
        try:
            container = await self._host.start(self._spec(await self._image, link), slot=0)
        except EnvStartFailed as error:
            raise ScoreFault(f"no sandbox could be started: {error}", cause="sandbox_start_failed") from error

        async def last_words() -> str:
            return (await container.logs(tail=20)).decode(errors="replace")

        return LaunchedSupervisor(INSIDE, container.remove, last_words)

    def _spec(self, image: str, link: Path) -> ContainerSpec:
        # Who runs this may read the environment; root's files are readable to all, or the sandbox does not start.
        user = os.getuid() or NOBODY
        scratch = f"size={self.limits.scratch_mib}m,nr_inodes={MAX_INODES},mode=0700,uid={user},gid={user}"
        return ContainerSpec(
            image=image,
            command=tuple(supervisor_command(self._python, SCORING, INSIDE, SCRATCH, self._functions)),
            environment=ENVIRONMENT,
            volumes={
                here: f"{there}:ro" for here, there in {"/usr": "/usr", str(link): INSIDE, **self._folders}.items()
            },
            cap_drop=("ALL",),
            security_opt=("no-new-privileges",),
            user=f"{user}:{user}",
            read_only=True,
            tmpfs={SCRATCH: scratch},
            network="none",
            ipc="none",
            limits=ContainerLimits(
                memory_mib=LOADED_MIB + self.limits.memory_mib + self.limits.scratch_mib, cpus=1.0, pids=MAX_PIDS
            ),
        )


def build_image(settings: DockerHostConfig) -> str:
    """Make sure that the engine has the sandbox's image, and return its name.

    Raises:
        EngineMissing: If no engine answers.
    """
    archive = _archive()
    name = f"{REPOSITORY}:{hashlib.sha256(archive).hexdigest()[:16]}"
    client = connect(settings)
    try:
        if not client.api.images(name=name):
            _import(client, name, archive)
        return name
    finally:
        client.close()


def _import(client: Any, name: str, archive: bytes) -> None:
    repository, _, tag = name.partition(":")
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        file.write(archive)
        file.flush()
        client.api.import_image_from_file(file.name, repository=repository, tag=tag)


def _archive() -> bytes:
    """Return the image's files as a tar, the same bytes for the same content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:

        def add(name: str, data: bytes | None = None, link: str | None = None) -> None:
            info = tarfile.TarInfo(name)
            info.mode = 0o755 if data is None else 0o644
            if link is not None:
                info.type, info.linkname = tarfile.SYMTYPE, link
            elif data is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(data)
            tar.addfile(info, io.BytesIO(data) if data is not None else None)

        for folder in _FOLDERS:
            add(folder)
        for path in map(Path, ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")):
            if path.is_symlink():
                add(path.name, link=str(path.readlink()))
        for path in map(Path, _COPIED):
            if path.is_file():
                add(str(path).lstrip("/"), path.read_bytes())
        add("etc/passwd", f"root:x:0:0::/:/bin/false\nscorer:x:{NOBODY}:{NOBODY}::{SCRATCH}:/bin/false\n".encode())
        add(f"scoring/{CODE.name}")
        for path in sorted(CODE.glob("*.py")):
            add(f"scoring/{CODE.name}/{path.name}", path.read_bytes())
    return buffer.getvalue()
