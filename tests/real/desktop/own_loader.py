"""A disk with its own boot loader, for tests: Debian with systemd, GRUB for BIOS and UEFI, and our desktop's server."""

from pathlib import Path

from dartsim.real.desktop.debian import make_debian
from dartsim.real.desktop.images import python_entries, to_tar
from dartsim.real.desktop.recipe import ENVIRONMENT, FINISH, PACKAGES, Entry, own_entries

BOOT_PACKAGES = (
    *("fdisk", "grub-efi-amd64-bin", "grub-pc-bin", "initramfs-tools", "linux-image-amd64", "mtools"),
    *("qemu-utils", "systemd-sysv", "udev", "xserver-xorg-core", "xserver-xorg-legacy", "zstd"),
)
SCRIPT = Path(__file__).with_name("own-loader-disk")


def make_disk(scratch: Path, *, width: int, height: int) -> Path:
    """Make the disk from Debian's packages, in a minute or two, and return its path."""
    settings = {**ENVIRONMENT, "WIDTH": width, "HEIGHT": height, "WARM_ACTIONS": 1}
    lines = "".join(f"{name}={value}\n" for name, value in settings.items())
    own = scratch / "own.tar"
    entries = [*own_entries("skeleton"), *python_entries(print), Entry("/etc/desktop", lines.encode(), mode=0o644)]
    own.write_bytes(to_tar(entries))
    hooks = (f"tar-in {own} /", f'chroot "$1" {FINISH}', f'sh {SCRIPT} "$1"', f"copy-out /disk.qcow2 {scratch}")
    make_debian(scratch, (*PACKAGES, *BOOT_PACKAGES), print, hooks=hooks).unlink()
    return scratch / "disk.qcow2"
