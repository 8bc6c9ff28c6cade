"""A disk that boots by itself: the virtual machine's Debian behind GRUB, for BIOS and for UEFI."""

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

SECTOR = 512
MIB = 2**20
LAYOUT = {"loader": (1, 1, "21686148-6449-6E6F-744E-656564454649"), "efi": (2, 62, "U"), "root": (64, 6144, "L")}
"""Partitions: first MiB, size in MiB, type."""
GRUB = Path("/usr/lib/grub")
TOOLS = ("grub-mkimage", "mformat", "sfdisk", "cpio")
NEEDED = "grub-pc-bin, grub-efi-amd64-bin, mtools, fdisk and cpio"
MENU = """linux /kernel console=ttyS0 panic=-1 mitigations=off no_timer_check
initrd /initrd
boot
"""
MODULES = ("part_gpt", "fat", "normal", "linux", "configfile")


def tools_missing() -> bool:
    folders = (GRUB / "i386-pc", GRUB / "x86_64-efi")
    return any(shutil.which(tool) is None for tool in TOOLS) or not all(folder.is_dir() for folder in folders)


def make_disk(client: Any, image: str, folder: Path) -> Path:
    """Make the disk from the virtual machine's image, in a folder that the engine sees, too."""

    def inside(script: str) -> None:
        volumes = {str(folder): {"bind": "/made", "mode": "rw"}}
        client.containers.run(image, entrypoint=["sh", "-euc", script], volumes=volumes, remove=True)

    raw = folder / "raw"
    with raw.open("wb") as file:
        file.truncate((sum(LAYOUT["root"][:2]) + 1) * MIB)
    parts = "".join(f"start={start}MiB, size={size}MiB, type={kind}\n" for start, size, kind in LAYOUT.values())
    run("sfdisk", "--quiet", str(raw), given=f"label: gpt\n{parts}".encode())
    target = f"driver=raw,offset={LAYOUT['root'][0] * MIB},file.filename=/made/raw"
    inside(f"cp /vm/kernel /vm/initrd /made; qemu-img convert -n --target-image-opts /System.qcow2 {target}")
    # The kernel unpacks one archive after the other: this init replaces the one for a disk without partitions.
    init = folder / "init"
    run("sh", "-c", f"cpio -i --to-stdout init <{folder}/initrd >{init}")
    init.write_text(init.read_text().replace("/dev/vda ", "/dev/vda3 "))
    init.chmod(0o755)
    with (folder / "initrd").open("ab") as file:
        file.write(run("cpio", "-o", "-H", "newc", "--quiet", cwd=folder, given=b"init\n"))
    (folder / "grub.cfg").write_text(MENU)

    for name, more in {"i386-pc": ("biosdisk",), "x86_64-efi": ()}.items():
        output, prefix = str(folder / name), "(hd0,gpt2)/grub"
        run("grub-mkimage", "-O", name, "-o", output, "-p", prefix, *MODULES, *more)
    embed(raw, (GRUB / "i386-pc" / "boot.img").read_bytes(), (folder / "i386-pc").read_bytes())
    efi = f"{raw}@@{LAYOUT['efi'][0] * MIB}"
    run("mformat", "-i", efi, "-F", "-T", str(LAYOUT["efi"][1] * MIB // SECTOR))
    run("mmd", "-i", efi, "::/EFI", "::/EFI/BOOT", "::/grub")
    for name, place in {
        "x86_64-efi": "EFI/BOOT/BOOTX64.EFI",
        "grub.cfg": "grub/grub.cfg",
        "kernel": "kernel",
        "initrd": "initrd",
    }.items():
        run("mcopy", "-i", efi, str(folder / name), f"::/{place}")
    inside("qemu-img convert -O qcow2 /made/raw /made/disk.qcow2")
    raw.unlink()
    return folder / "disk.qcow2"


def embed(disk: Path, boot: bytes, core: bytes) -> None:
    """Write GRUB's first sector, and the rest of it into the partition for loaders, as grub-install does."""
    first = LAYOUT["loader"][0] * MIB // SECTOR
    with disk.open("r+b") as file:
        file.write(boot[:0x5C] + struct.pack("<Q", first) + boot[0x64:440])
        file.seek(first * SECTOR)
        file.write(core[:0x1F4] + struct.pack("<Q", first + 1) + core[0x1FC:])


def run(*command: str, given: bytes = b"", cwd: Path | None = None) -> bytes:
    return subprocess.run(command, input=given, cwd=cwd, check=True, stdout=subprocess.PIPE).stdout
