"""The skeleton: our files and the machine's settings; the machine's ``/usr`` is mounted into it, read-only.

It takes a second and some megabytes to make and needs neither a registry nor a download. The engine must run on this
machine, which must have the packages.
"""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from dartsim.core.errors import ConfigError
from dartsim.real.desktop.recipe import HOME, PACKAGES, USER_ID, Entry

_COPIED = (
    "/etc/X11",
    "/etc/alternatives",
    "/etc/dbus-1",
    "/etc/fonts",
    "/etc/gtk-3.0",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/xdg",
    # Without it the first application spends a second on scanning all fonts.
    "/var/cache/fontconfig",
)
_NEEDED = {
    **{
        "Xvfb": "xvfb",
        "at-spi-bus-launcher": "at-spi2-core",
        "dbus-daemon": "dbus-daemon",
        "gio": "libglib2.0-bin",
    },
    "xprop": "x11-utils",
    **{name: name for name in ("galculator", "mousepad", "openbox", "python3", "scrot", "thunar", "tini", "wmctrl")},
    **{name: name for name in ("xauth", "xdotool", "xsel", "xterm")},
}
"""Program -> the Debian package that has it."""
_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_FOLDERS = ("/dev", "/etc", "/mnt", "/proc", "/root", "/run", "/srv", "/sys", "/usr", "/var/lib", "/var/log")
_SEARCHED = "/usr/bin:/usr/sbin:/usr/libexec"


def missing_packages() -> list[str]:
    """Return the Debian packages that a skeleton needs and this machine lacks, judging by their programs."""
    missing = {package for program, package in _NEEDED.items() if shutil.which(program, path=_SEARCHED) is None}
    site = Path("/usr/lib/python3/dist-packages")
    modules = ("gi", "PIL", "flask", "waitress", "Xlib")
    missing |= {f"python3-{module.lower()}" for module in modules if not (site / module).exists()}
    typelibs = [*Path("/usr/lib").glob("*/girepository-1.0"), Path("/usr/lib/girepository-1.0")]
    for name, package in {"Atspi-2.0": "gir1.2-atspi-2.0", "Gtk-3.0": "gir1.2-gtk-3.0"}.items():
        if not any((folder / f"{name}.typelib").exists() for folder in typelibs):
            missing.add(package)
    if not list(Path("/usr/lib").glob("python3.*/tkinter/__init__.py")):
        missing.add("python3-tk")
    return sorted(missing)


def machine_problem() -> tuple[str, str] | None:
    """Return why no skeleton can be made on this machine and what to do about it, or None if one can."""
    missing = missing_packages()
    if missing:
        return (
            f"a skeleton desktop runs on this machine's own programs, and {', '.join(missing)} are missing",
            f"type `apt-get install --no-install-recommends {' '.join(PACKAGES)}`, or build the image `apps`",
        )
    if not Path("/bin").is_symlink():
        return "/bin of this machine is no link into /usr, which a skeleton is made of", "build the image `apps`"
    return None


def machine_entries() -> list[Entry]:
    """Return the part of a skeleton that comes from this machine.

    Raises:
        ConfigError: If packages are missing, or ``/bin`` is no link into ``/usr``.
    """
    if (problem := machine_problem()) is not None:
        raise ConfigError(": ".join(problem))
    links = [Entry(link, link=str(Path(link).readlink())) for link in _LINKS if Path(link).is_symlink()]
    copied = [entry for top in _COPIED for entry in _copies(Path(top))]
    return [*(Entry(folder) for folder in _FOLDERS), *links, *copied, *_identity()]


def _copies(top: Path) -> Iterator[Entry]:
    """Yield a path and everything in it that is world-readable."""
    try:
        mode = top.lstat().st_mode
        if stat.S_ISLNK(mode):
            yield Entry(str(top), link=str(top.readlink()))
        elif stat.S_ISDIR(mode) and mode & stat.S_IROTH:
            yield Entry(str(top))
            for child in sorted(top.iterdir()):
                yield from _copies(child)
        elif stat.S_ISREG(mode) and mode & stat.S_IROTH:
            yield Entry(str(top), top.read_bytes(), mode=stat.S_IMODE(mode) & 0o755)
    except FileNotFoundError:
        return  # not on this machine, or just removed


def _identity() -> list[Entry]:
    """Return the accounts (root, one user, nobody) and the folders that all may write to."""
    passwd = (
        "root:x:0:0:root:/root:/bin/sh\n"
        f"user:x:{USER_ID}:{USER_ID}:user:{HOME}:/bin/bash\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    )
    group = f"root:x:0:\ntty:x:5:\nuser:x:{USER_ID}:\nnogroup:x:65534:\n"
    return [
        Entry("/etc/passwd", passwd.encode(), mode=0o644),
        Entry("/etc/group", group.encode(), mode=0o644),
        # D-Bus requires one, which need not be unique.
        Entry("/etc/machine-id", b"0123456789abcdef0123456789abcdef\n", mode=0o644),
        Entry("/tmp", mode=0o1777),
        Entry("/var/tmp", mode=0o1777),
        Entry("/tmp/.X11-unix", mode=0o1777),
    ]
