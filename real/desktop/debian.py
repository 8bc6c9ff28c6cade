"""The full image's file system: a Debian from this machine's own mirror, made by mmdebstrap."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from dartsim.core.errors import ConfigError
from dartsim.real.desktop.recipe import HOME, SUITE, USER_ID

DEFAULT_MIRROR = "http://deb.debian.org/debian"


def make(scratch: Path, ours: bytes, packages: Sequence[str], on_line: Callable[[str], None]) -> Path:
    """Make the file system as a tar file, and return its path.

    Raises:
        ConfigError: If mmdebstrap is missing or failed.
    """
    if shutil.which("mmdebstrap") is None:
        raise ConfigError("the full image is made by mmdebstrap, which is missing: type `apt-get install mmdebstrap`")
    own, archive = scratch / "own.tar", scratch / "full.tar"
    own.write_bytes(ours)
    user = f"user:x:{USER_ID}:{USER_ID}:user:{HOME}:/bin/bash"
    hooks = [
        f'echo {user} >> "$1/etc/passwd"',
        f'echo user:x:{USER_ID}: >> "$1/etc/group"',
        f"tar-in {own} /",
        'chroot "$1" python3 -m compileall -q --invalidation-mode unchecked-hash /opt/dartsim || true',
        'chroot "$1" fc-cache -s',
        'test -s "$1/etc/machine-id" || echo 0123456789abcdef0123456789abcdef > "$1/etc/machine-id"',
    ]
    # The manuals and translations are half of it.
    left_out = ["/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/help/*"]
    command = [
        *("mmdebstrap", "--variant=minbase", f"--include={','.join(packages)}"),
        *(f"--dpkgopt=path-exclude={path}" for path in left_out),
        *(f"--customize-hook={hook}" for hook in hooks),
        *(SUITE, str(archive), f"deb {mirror()} {SUITE} main"),
    ]
    _run(command, on_line)
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


def _run(command: Sequence[str], on_line: Callable[[str], None]) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    last = ""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                last = line.strip() or last
                on_line(last)
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise ConfigError(f"mmdebstrap failed with {process.returncode}: {last}")
