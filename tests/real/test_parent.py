"""A child that was forked by a parent which has ended since ends too."""

import os
import signal
import subprocess
import sys
from functools import partial

from dartsim.real.parent import end_with


def ended(parent: int) -> int:
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, preexec_fn=partial(end_with, parent, signal.SIGTERM)
    )
    child.communicate(b"\n")
    return child.returncode


def test_a_parent_that_lives_is_not_missed():
    assert ended(os.getpid()) == 0


def test_a_parent_that_was_gone_before_the_kernel_was_asked_is():
    assert ended(os.getpid() + 1) == 128 + signal.SIGTERM
