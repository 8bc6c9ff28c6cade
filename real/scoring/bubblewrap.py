"""Sandboxes without an engine: in bubblewrap's namespaces, or, for our own metrics alone, as a limited process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import Sequence
from pathlib import Path

from dartsim.config.sections.desktop import ScoringConfig
from dartsim.core.errors import ConfigError
from dartsim.real.scoring.evaluator_venv import python_of
from dartsim.real.scoring.sandbox import CODE, LaunchedSupervisor, SandboxKind, supervisor_command

INSIDE, SCORING, SCRATCH, EVALUATOR = "/driver", "/scoring", "/scratch", "/evaluator"
ENVIRONMENT = {
    **{"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "HOME": SCRATCH, "TMPDIR": SCRATCH},
    "PYTHONMALLOC": "malloc",  # one heap, which fits into huge pages: see the supervisor
}
NOBODY = "65534"
STOP_SECONDS = 5.0


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


class BubblewrapLauncher:
    """Starts supervisors in namespaces of their own, as an unprivileged user, with ``bwrap``.

    Raises:
        ConfigError: If ``bwrap`` or the environment is missing.
    """

    kind = SandboxKind.BUBBLEWRAP

    def __init__(self, home: Path | None, limits: ScoringConfig = ScoringConfig()) -> None:  # noqa: B008 - frozen
        program = shutil.which("bwrap")
        if program is None:
            raise ConfigError("found no bwrap, wanted bubblewrap: `apt-get install bubblewrap`")
        self.limits = limits
        self._program = program
        self._python, self._folders = functions_of(home)
        self._functions = "own" if home is None else "desktop-env"

    async def launch(self, link: Path) -> LaunchedSupervisor:
        program = supervisor_command(self._python, SCORING, INSIDE, SCRATCH, self._functions)
        return await _spawn(self._command(link, program), {}, INSIDE, link.parent)

    async def works(self) -> bool:
        """Whether a sandbox can start here: whether a program that does nothing ends well in the same namespaces."""
        process = await asyncio.create_subprocess_exec(
            *self._command(CODE, [*self._python, "-c", ""]), stdout=DEVNULL, stderr=DEVNULL, env={}
        )
        return await process.wait() == 0

    def _command(self, link: Path, program: Sequence[str]) -> list[str]:
        """Return what runs a program in namespaces of its own; it sees the folder ``link``."""
        mounts = [
            ("--ro-bind", "/usr", "/usr"),
            *_machine_paths(),
            *(("--ro-bind", here, there) for here, there in self._folders.items()),
            ("--ro-bind", str(CODE), f"{SCORING}/{CODE.name}"),
            ("--ro-bind", str(link), INSIDE),
        ]
        outer: list[str] = []
        if os.getuid() == 0:
            outer = _as_nobody(self._program, mounts)
            mounts = [(kind, there if kind == "--ro-bind" else source, there) for kind, source, there in mounts]
        return [
            *outer,
            self._program,
            *(
                "--unshare-all",
                "--unshare-user",
                "--disable-userns",
                "--die-with-parent",
                "--as-pid-1",
                "--new-session",
            ),
            *("--uid", NOBODY, "--gid", NOBODY, "--cap-drop", "ALL", "--clearenv"),
            *(part for name, value in ENVIRONMENT.items() for part in ("--setenv", name, value)),
            *(part for mount in mounts for part in mount),
            *("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"),
            *("--size", str(self.limits.scratch_mib * 2**20), "--tmpfs", SCRATCH),
            *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"),
            *program,
        ]


class ProcessLauncher:
    """Starts supervisors as plain processes with limits, for our own metrics: they run no code of an agent."""

    kind = SandboxKind.PROCESS

    def __init__(self, limits: ScoringConfig = ScoringConfig()) -> None:  # noqa: B008 - frozen
        self.limits = limits

    async def launch(self, link: Path) -> LaunchedSupervisor:
        python, _ = functions_of(None)
        folder = link.parent / "scratch"
        folder.mkdir(mode=0o700)
        environment = {**ENVIRONMENT, "HOME": str(folder), "TMPDIR": str(folder)}
        command = supervisor_command(python, str(CODE.parent), str(link), str(folder), "own")
        return await _spawn(command, environment, str(link), link.parent)


def _as_nobody(program: str, mounts: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return what runs a command as the user nobody, who sees these mounts and little else of this machine.

    A user namespace that root has made does not take root's power away: the kernel lets user 0 write ``/proc/sys`` and
    change the modes of devices even without a capability.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise ConfigError(
            "found no setpriv, which root needs to run bubblewrap as nobody: `apt-get install util-linux`"
        )
    parents = {str(parent) for *_, there in mounts for parent in Path(there).parents} | {"/tmp"}
    return [
        *(program, "--die-with-parent"),
        *(part for path in sorted(parents - {"/"}) for part in ("--perms", "0755", "--dir", path)),
        *(part for mount in mounts for part in mount),
        *("--bind", "/proc", "/proc", "--dev-bind", "/dev", "/dev"),
        *("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"),
        *(setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
    ]


def _machine_paths() -> list[tuple[str, str, str]]:
    """Return bubblewrap's options for what programs need of this machine beside ``/usr``."""
    options: list[tuple[str, str, str]] = []
    for path in map(Path, ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")):
        if path.is_symlink():
            options.append(("--symlink", str(path.readlink()), str(path)))
        elif path.is_dir():
            options.append(("--ro-bind", str(path), str(path)))
    names = ("/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types", "/etc/alternatives")
    return [*options, *(("--ro-bind", name, name) for name in names if Path(name).exists())]


async def _spawn(command: list[str], environment: dict[str, str], inside: str, folder: Path) -> LaunchedSupervisor:
    words = folder / "words"
    with words.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=errors,
            env=environment,
            start_new_session=True,
        )

    async def stop() -> None:
        # It ends by itself, and all it has started with it, when the connection does.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

    async def last_words() -> str:
        return words.read_text(errors="replace")

    return LaunchedSupervisor(inside, stop, last_words)
