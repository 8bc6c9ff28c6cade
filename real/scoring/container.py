"""Sandboxes as containers on this machine's Docker engine, and ``open_pool``, which provides some for a run.

The image holds links, a user and our supervisor; ``/usr``, the interpreter and the evaluator's environment are mounted
read-only from this machine, whose engine it has to be.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dartsim.config.sections.desktop import DEFAULT_URL, DockerHostConfig
from dartsim.core.errors import EnvStartFailed
from dartsim.real.containers.engine import connect
from dartsim.real.containers.host import Container, DockerHost
from dartsim.real.containers.spec import ContainerLimits, ContainerSpec
from dartsim.real.scoring.evaluator_venv import python_of
from dartsim.real.scoring.pool import SandboxPool
from dartsim.real.scoring.sandbox import CODE, INSIDE, ScoreFault, ScoreLimits, SupervisedSandbox

SCORING, SCRATCH, EVALUATOR = "/scoring", "/scratch", "/evaluator"
ENVIRONMENT = {
    **{"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "HOME": SCRATCH, "TMPDIR": SCRATCH},
    "PYTHONMALLOC": "malloc",  # one heap, which fits into huge pages: see the supervisor
}
REPOSITORY = "dartsim/scorer"
NOBODY = 65534
MAX_INODES = 20_000
MAX_PIDS = 64
"""Processes and threads of a sandbox."""
LOADED_MIB = 512
"""Memory of the loaded functions, MiB."""
_FOLDERS = ("dev", "driver", "etc", "evaluator", "proc", "scoring", "scratch", "sys", "usr")
_COPIED = ("/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types")


@asynccontextmanager
async def open_pool(
    home: Path | None,
    *,
    size: int | None = None,
    limits: ScoreLimits = ScoreLimits(),  # noqa: B008 - frozen
) -> AsyncIterator[SandboxPool]:
    """Provide sandboxes; at the end none is left.

    Args:
        home: The evaluator's environment; None for our own metrics.
        size: How many; by default one per core.
        limits: What a call may use.

    Raises:
        ConfigError: If the evaluator is not installed.
        EngineMissing: If no engine answers.
        ScoreFault: If no sandbox starts.
    """
    size = size or SandboxPool.default_size()
    host = DockerHost(local_engine(max_desktops=size + 1, concurrent_starts=2), run="scoring")
    try:
        sandboxes = ScoringContainers(host, home, limits)
        await host.reap()
        async with SandboxPool(sandboxes.open, size=size) as pool:
            yield pool
    finally:
        await host.close()


def local_engine(**settings: Any) -> DockerHostConfig:
    """Return this machine's engine: that of DOCKER_HOST, unless it names another machine."""
    engine = DockerHostConfig(**settings)
    return engine if engine.local else DockerHostConfig(url=DEFAULT_URL, **settings)


def functions_of(home: Path | None) -> tuple[list[str], dict[str, str]]:
    """Return the interpreter inside with its options, and the folders that it reads beside ``/usr``: path here, inside.

    Raises:
        ConfigError: If there is no such environment.
    """
    python = Path(sys.executable) if home is None else python_of(home)
    real = python.resolve()
    base = real.parent.parent
    folders = {} if base.is_relative_to("/usr") else {str(base): str(base)}  # links lead to it by this path
    if home is None:
        return [str(real), "-I", "-S"], folders
    return [f"{EVALUATOR}/bin/python", "-s"], {**folders, str(home.resolve()): EVALUATOR}


def supervisor_command(python: Sequence[str], code: str, link: str, scratch: str, functions: str) -> tuple[str, ...]:
    """Return the command of a supervisor; the folder ``code`` holds the package ``CODE``."""
    # The empty path is the current folder, which is an agent's later.
    path = "import sys; sys.path[:] = [sys.argv.pop(1), *filter(None, sys.path)]"
    boot = f"{path}; from sandboxed.supervisor import main; main()"
    return (*python, "-c", boot, code, f"{link}/control", scratch, functions)


class ScoringContainers:
    """Opens sandboxes in containers of this machine's engine.

    Raises:
        ConfigError: If there is no such environment.
    """

    def __init__(self, host: DockerHost, home: Path | None, limits: ScoreLimits) -> None:
        self._limits = limits
        self._host = host
        self._python, self._folders = functions_of(home)
        self._functions = "own" if home is None else "desktop-env"
        self._image: asyncio.Task[str] | None = None

    async def open(self) -> SupervisedSandbox:
        """Start a sandbox and return it once its functions are loaded.

        Raises:
            ScoreFault: If it does not start; nothing of it is left.
        """
        sandbox = SupervisedSandbox(self._limits)
        try:
            await sandbox.start(self._launch)
        except BaseException:
            await sandbox.close()
            raise
        return sandbox

    async def _launch(self, link: Path) -> Container:
        if self._image is None:
            self._image = asyncio.create_task(asyncio.to_thread(build_image, self._host.settings))
        try:
            return await self._host.start(self._spec(await self._image, link), slot=0)
        except EnvStartFailed as error:
            raise ScoreFault(f"no sandbox could be started: {error}", cause="sandbox_start_failed") from error

    def _spec(self, image: str, link: Path) -> ContainerSpec:
        # The current user can read the environment; root's files must be world-readable, or the sandbox fails to start.
        user = os.getuid() or NOBODY
        scratch = f"size={self._limits.scratch_mib}m,nr_inodes={MAX_INODES},mode=0700,uid={user},gid={user}"
        return ContainerSpec(
            image=image,
            command=supervisor_command(self._python, SCORING, INSIDE, SCRATCH, self._functions),
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
                memory_mib=LOADED_MIB + self._limits.memory_mib + self._limits.scratch_mib, cpus=1.0, pids=MAX_PIDS
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
