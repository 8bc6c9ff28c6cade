"""A seccomp filter: system calls that no metric needs, and by which code could get out or leave something behind.

A refused call gives EPERM. The filter is inherited by every process that comes later, and cannot be taken off.
Source of the list: what Docker's default profile refuses to a container without capabilities, and ptrace with its kin.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import socket
import struct
import sys

PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
"""Instructions of BPF: load a word of the call's data; jump if it equals, is at least, has a bit of; return."""
NUMBER_AT, ARCHITECTURE_AT, FIRST_ARGUMENT_AT = 0, 4, 16
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
"""What a filter returns; ``REFUSE`` takes an error number in its low bits."""
X32_CALLS = 0x40000000
NEW_NAMESPACES = 0x7E020080
"""The flags of clone that make a namespace: time, mount, cgroup, UTS, IPC, user, PID and network."""
FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
"""Sockets that a network namespace keeps apart; AF_VSOCK leads to a virtual machine's host."""

CALLS: dict[str, tuple[int | None, int | None]] = {
    # name: its number on x86-64, on aarch64
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mbind": (237, 235),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "set_mempolicy": (238, 237),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
ARCHITECTURES = {
    # column of CALLS, the kernel's number of the architecture, clone, clone3, socket
    "x86_64": (0, 0xC000003E, 56, 435, 41),
    "aarch64": (1, 0xC00000B7, 220, 435, 198),
}


def refuse_system_calls(libc: ctypes.CDLL) -> None:
    """Put the filter on this process; nothing on an architecture that ``ARCHITECTURES`` lacks.

    Raises:
        OSError: If the kernel has no seccomp.
    """
    if platform.machine() not in ARCHITECTURES or sys.byteorder != "little":
        return
    code = ctypes.create_string_buffer(program(platform.machine()))
    header = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(code))
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0):
        raise OSError(ctypes.get_errno(), "no seccomp filter can be set")


def program(machine: str) -> bytes:
    """Return the filter for an architecture, as instructions of the kernel's BPF."""
    column, architecture, clone, clone3, new_socket = ARCHITECTURES[machine]
    steps: list[tuple[int, int, int, int]] = []

    def refuse_if(instruction: int, value: int, *, error: int = errno.EPERM, inverted: bool = False) -> None:
        steps.append((instruction, int(inverted), int(not inverted), value))
        steps.append((RETURN, 0, 0, REFUSE | error))

    def load(offset: int) -> None:
        steps.append((LOAD, 0, 0, offset))

    load(ARCHITECTURE_AT)
    refuse_if(EQUAL, architecture, inverted=True)
    load(NUMBER_AT)
    refuse_if(AT_LEAST, X32_CALLS)
    for numbers in CALLS.values():
        if (number := numbers[column]) is not None:
            refuse_if(EQUAL, number)
    refuse_if(EQUAL, clone3, error=errno.ENOSYS)  # its flags cannot be read here; libc takes clone instead
    steps.append((EQUAL, 0, 4, clone))
    load(FIRST_ARGUMENT_AT)
    refuse_if(ANY_BIT, NEW_NAMESPACES)
    steps.append((RETURN, 0, 0, ALLOW))
    steps.append((EQUAL, 0, len(FAMILIES) + 2, new_socket))
    load(FIRST_ARGUMENT_AT)
    steps.extend((EQUAL, len(FAMILIES) - place, 0, family) for place, family in enumerate(FAMILIES))
    steps.append((RETURN, 0, 0, REFUSE | errno.EPERM))
    steps.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("HBBI", *step) for step in steps)
