"""Pools and children: they end with the process that started them."""

import os
import select
import signal
import subprocess
import sys
from concurrent.futures import wait
from functools import partial

import pytest

from dartsim.real.processes import end_with, process_pool

PARENT = """
import os, sys, time
from dartsim.real.processes import process_pool

if __name__ == "__main__":
    pool = process_pool(2)
    pids = [pool.submit(os.getpid).result()]
    pool.submit(time.sleep, 600.0)
    print(*pids, flush=True)
    time.sleep(600.0)
"""


def test_a_pool_ends_with_the_process_that_made_it(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        ended = os.pidfd_open(worker)  # readable when it has ended
        os.kill(parent.pid, signal.SIGKILL)
    try:
        assert select.select([ended], [], [], 60.0)[0] == [ended]
    finally:
        os.close(ended)


def _fail(message):
    raise ValueError(message)


def test_what_a_job_raises_comes_back_and_the_pool_goes_on():
    with process_pool(1, os.putenv, ("DARTSIM_TEST", "1")) as pool:
        failed, done = pool.submit(_fail, "no"), pool.submit(abs, -3)
        wait([failed, done])
        assert done.result() == 3
        with pytest.raises(ValueError, match="no"):
            failed.result()


def test_an_error_waits_for_nothing_that_runs():
    futures = []

    def use():
        with process_pool(1) as pool:
            assert pool.submit(abs, -1).result() == 1
            futures.extend([pool.submit(select.select, [], [], [], 600.0), pool.submit(abs, -2)])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        use()
    assert all(future.done() for future in futures)


def status_of_a_child_of(parent):
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, preexec_fn=partial(end_with, parent, signal.SIGTERM)
    )
    child.communicate(b"\n")
    return child.returncode


def test_a_child_stays_while_its_parent_lives():
    assert status_of_a_child_of(os.getpid()) == 0


def test_a_child_whose_parent_had_ended_before_it_asked_the_kernel_ends():
    assert status_of_a_child_of(os.getpid() + 1) == 128 + signal.SIGTERM
