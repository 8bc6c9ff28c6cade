"""A child process ends when its parent does, however that ends: asked of the Linux kernel."""

from __future__ import annotations

import ctypes
import os

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)  # loaded before any fork: in the child there is little that one may do


def end_with(parent: int, signal_number: int) -> None:
    """In a child: have the kernel send this process a signal when the parent's thread that forked it ends.

    Args:
        parent: Its process number; one that has ended before the kernel was asked counts as well.
        signal_number: What is sent.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal_number)
    if os.getppid() != parent:
        os._exit(128 + signal_number)  # not by the signal itself, which whoever forked this may handle
