"""Which kind of sandbox is opened, and what is refused where there is none."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess

import pytest

from dartsim.config import load
from dartsim.config.sections.desktop import ScoringConfig
from dartsim.core.errors import ConfigError
from dartsim.core.types import Task
from dartsim.real.containers.errors import EngineMissing
from dartsim.real.scoring.opening import choose, open_pool
from dartsim.real.scoring.sandbox import SandboxKind

pytest.importorskip("httpx", reason="needs the extra `real`")

from dartsim.real.osworld.backend import open_scorer_pool


@pytest.fixture
def no_engine(monkeypatch):
    def refuse(settings):
        raise EngineMissing("nobody answers")

    monkeypatch.setattr("dartsim.real.scoring.opening.connect", refuse)


@pytest.fixture
def no_bubblewrap(monkeypatch):
    found = shutil.which
    monkeypatch.setattr(
        "shutil.which", lambda program, **options: None if program == "bwrap" else found(program, **options)
    )


@pytest.mark.usefixtures("no_engine")
def test_without_an_engine_it_is_bubblewrap(monkeypatch):
    async def work() -> bool:
        return True

    monkeypatch.setattr("dartsim.real.scoring.opening._namespaces_work", work)
    assert asyncio.run(choose()) is SandboxKind.BUBBLEWRAP
    assert asyncio.run(choose("process")) is SandboxKind.PROCESS


@pytest.mark.usefixtures("no_engine")
def test_a_machine_that_cannot_start_the_whole_sandbox_has_no_bubblewrap(monkeypatch, tmp_path):
    """A bwrap that works, but that the unprivileged user behind it may not use."""
    program = shutil.which("bwrap")
    if program is None or os.getuid() != 0:
        pytest.skip("only root starts a bwrap within another")
    inner = tmp_path / "bwrap"
    inner.write_text(f'#!/bin/sh\n[ "$(id -u)" = 0 ] || exit 1\nexec {program} "$@"\n')
    inner.chmod(0o755)
    assert subprocess.run([inner, "--unshare-all", "--ro-bind", "/", "/", "true"], check=False).returncode == 0
    monkeypatch.setattr("shutil.which", lambda name, found=shutil.which: str(inner) if name == "bwrap" else found(name))
    assert asyncio.run(choose()) is SandboxKind.PROCESS


@pytest.mark.usefixtures("no_engine", "no_bubblewrap")
def test_without_either_only_our_own_metrics_score(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").touch()

    async def score(home):
        async with open_pool(home, ScoringConfig(sandboxes=1)) as pool:
            return await pool.run(lambda sandbox: sandbox.metric("exact_match", ["a", {"expected": "a"}], {}))

    assert asyncio.run(choose()) is SandboxKind.PROCESS
    assert asyncio.run(score(None)) == 1.0
    with pytest.raises(ConfigError, match="need a container or bubblewrap"):
        asyncio.run(score(tmp_path))
    with pytest.raises(ConfigError, match="dartsim desktop evaluator"):
        asyncio.run(score(tmp_path / "none"))


def test_an_engine_of_another_machine_is_not_used(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    assert asyncio.run(choose()) is not SandboxKind.CONTAINER


@pytest.mark.usefixtures("no_engine", "no_bubblewrap")
def test_a_task_that_needs_a_sandbox_is_refused_by_name():
    evaluator = {"func": "compare_pdfs", "result": {"type": "vm_command_line", "command": "say"}}
    offered = [Task("the-task", "do it", "os", {"evaluator": evaluator})]

    async def go():
        async with open_scorer_pool(load(preset_name="desktop"), offered):
            pass

    with pytest.raises(ConfigError, match=r"desktop-env scores the-task: .* needs a sandbox"):
        asyncio.run(go())


@pytest.mark.usefixtures("no_engine", "no_bubblewrap")
def test_tasks_of_our_own_metrics_need_no_sandbox():
    evaluator = {"func": "exact_match", "result": {"type": "vm_command_line", "command": "say"}}

    async def go():
        async with open_scorer_pool(
            load(preset_name="desktop"), [Task("t", "do it", "os", {"evaluator": evaluator})]
        ) as pool:
            return (await pool.facts()).scorer

    assert asyncio.run(go()) == "dartsim 1"
