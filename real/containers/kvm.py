"""Whether a virtual machine may use KVM here.

That ``/dev/kvm`` exists says little: it may be closed to us, or belong to a module on which a stock guest does not
boot (a paravirtual one). OSWorld's own provider asks only whether the file exists.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

VENDOR_MODULES = ("kvm_intel", "kvm_amd")
"""Modules that run an unchanged x86 guest on the processor's own virtualization."""

_GET_API_VERSION = 0xAE00
"""ioctl KVM_GET_API_VERSION (Linux, Documentation/virt/kvm/api.rst)."""


class Kvm(StrEnum):
    """The setting."""

    AUTO = "auto"
    """On if a vendor's module is loaded and the device opens."""
    ON = "on"
    """On, whatever is found; for an engine on another machine, where nobody here can look."""
    OFF = "off"
    """Off: the guest is emulated, 5 to 20 times slower."""


@dataclass(frozen=True, slots=True)
class KvmState:
    """A decision, and why."""

    use: bool
    why: str


def kvm_state(
    setting: Kvm, *, modules: Path = Path("/sys/module"), device: Path = Path("/dev/kvm"), local: bool = True
) -> KvmState:
    """Decide whether to use KVM.

    Args:
        setting: What the user wants.
        modules: Where the kernel lists its modules, one folder each, built-in ones included.
        device: The device.
        local: Whether the engine runs on this machine; if not, ``auto`` is off.
    """
    if setting is not Kvm.AUTO:
        return KvmState(setting is Kvm.ON, f"set to {setting}")
    if not local:
        return KvmState(False, "the engine is on another machine, where KVM cannot be looked for: set kvm to on or off")
    vendor = next((name for name in VENDOR_MODULES if (modules / name).is_dir()), None)
    problem = _open_problem(device)
    if vendor is None:
        others = sorted(path.name for path in modules.glob("kvm*")) if modules.is_dir() else []
        seen = f"of the modules only {', '.join(others)}" if others else "no module of it"
        opens = "opens" if problem is None else problem
        return KvmState(False, f"neither {' nor '.join(VENDOR_MODULES)} is loaded ({seen}; {device} {opens})")
    if problem is not None:
        return KvmState(False, f"{vendor} is loaded, but {device} {problem}")
    return KvmState(True, f"{vendor} is loaded and {device} opens")


def _open_problem(device: Path) -> str | None:
    """Return why the device cannot be used, in words; None if it can."""
    try:
        handle = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return "does not exist"
    except OSError as error:
        return f"does not open ({error.strerror}): join the group `kvm`"
    try:
        fcntl.ioctl(handle, _GET_API_VERSION)
    except OSError as error:
        return f"opens, but is no KVM device ({error.strerror})"
    finally:
        os.close(handle)
    return None
