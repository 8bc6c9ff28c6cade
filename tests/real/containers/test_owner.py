"""Whether an owner lives: never wrong about this machine, silent about others."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dartsim.real.containers.owner import Life, Owner, life, new_owner, retire
from dartsim.real.processes import process_start

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here")


@pytest.fixture
def me():
    owner = new_owner()
    yield owner
    retire(owner)


def test_a_label_says_who(me):
    assert Owner.parse(str(me)) == me
    assert Owner.parse("somebody") is None
    assert Owner.parse("a:b:c:d:e") is None


def test_hosts_of_one_process_are_told_apart(me):
    other = new_owner()
    retire(other)
    assert (life(me), life(other)) == (Life.ALIVE, Life.GONE)


def test_another_process_of_this_machine(me):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    start = process_start(process.pid)
    assert start is not None
    theirs = replace(me, pid=process.pid, start=start, token="theirs")
    assert life(theirs) is Life.ALIVE
    assert life(replace(theirs, start=start - 1)) is Life.GONE, "the pid is another process's now"
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert life(theirs) is Life.GONE, "a zombie owns nothing"
    process.wait()
    assert life(theirs) is Life.GONE


def test_elsewhere_is_unknown(me):
    assert life(replace(me, boot="another boot")) is Life.UNKNOWN
    assert life(replace(me, namespace="1")) is Life.UNKNOWN
    assert life(replace(me, boot="")) is Life.UNKNOWN


def test_a_process_that_is_hidden_from_us_lives_if_a_signal_would_reach_it(me, tmp_path):
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text(me.boot)
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to(f"pid:[{me.namespace}]")
    assert life(replace(me, pid=os.getppid()), tmp_path) is Life.ALIVE
    assert life(replace(me, pid=2**22 + 1), tmp_path) is Life.GONE
