"""Ranks of several machines: what is started where, what is refused, and two of them on the loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dartsim.cli.app import app
from dartsim.config import load
from dartsim.config.sections.trainer import FsdpConfig
from dartsim.core.errors import ConfigError, LearnerFault
from dartsim.core.types import Batch
from dartsim.real.learners.fsdp.group import node_command, rank_command, rank_variables

TWO = ("trainer.fsdp.ranks=16", "trainer.fsdp.nodes=2", "trainer.fsdp.folder=/shared/learner", "trainer.fsdp.gpus=[]")


def test_ranks_meet_at_the_first_machine_in_the_order_of_the_machines() -> None:
    settings = FsdpConfig(ranks=16, nodes=2, address="10.0.0.1:29500", interface="eth1", gpus=list(range(8)))
    first, second = (rank_command(settings, "/shared/learner", node) for node in (0, 1))
    assert [one for one in first if one not in second] == ["--node-rank=0"]
    assert [one for one in second if one not in first] == ["--node-rank=1"]
    assert {"--nnodes=2", "--nproc-per-node=8", "--master-addr=10.0.0.1", "--master-port=29500"} <= set(first)
    assert "--standalone" not in first
    seen = rank_variables(settings)
    assert (seen["GLOO_SOCKET_IFNAME"], seen["NCCL_SOCKET_IFNAME"]) == ("eth1", "eth1")
    assert seen["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"
    assert node_command(settings, "/shared/learner", 1)[-len(second) :] == second


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("trainer.fsdp.ranks=3", "cannot be divided evenly"),
        ("trainer.fsdp.gpus=[0,1]", "names 2 GPUs of a node, which has 8 ranks"),
        ("trainer.fsdp.address=none", "needs trainer.fsdp.address"),
        ("trainer.fsdp.address=head", "needs trainer.fsdp.address"),
        ("trainer.fsdp.folder=none", "needs trainer.fsdp.folder"),
        ("ray.address=auto", "Ray places a learner with all of its ranks on one node"),
    ],
)
def test_a_configuration_is_refused_with_what_to_set(change: str, message: str) -> None:
    address = "trainer.fsdp.address=10.0.0.1:29500"
    load(preset_name="osworld-16gpu", overrides=[*TWO, address])
    with pytest.raises(ConfigError, match=message):
        load(preset_name="osworld-16gpu", overrides=[*TWO, address, change])


def test_a_check_shows_the_command_of_every_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sets = [word for one in (*TWO, "trainer.fsdp.address=10.0.0.1:29500") for word in ("--set", one)]
    command = ["check", "osworld-16gpu", *sets]
    found = json.loads(CliRunner().invoke(app, [*command, "--json", "-"]).stdout)
    learner = found["learner"]
    assert learner["what"].startswith("16 processes on 2 nodes of torch FSDP2")
    (here,), (there,) = learner["processes"], learner["start_there"]
    assert "--node-rank=0" in here["command"]
    assert there["command"][:2] == ["sh", "-c"]
    assert there["command"][-1] == "/shared/learner"
    assert "--node-rank=1" in there["command"]
    assert {"learner node 1", "this machine"} <= {gpu["host"] for gpu in found["memory"]["gpus"]}
    said = CliRunner().invoke(app, command)
    assert said.stdout.count("--nnodes=2") == 2
    assert "torchrun on node 1" in said.stdout


@contextmanager
def other_node(settings: FsdpConfig, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """What somebody starts on the second machine."""
    root = str(Path(__file__).resolve().parents[4])
    environment = {**os.environ, **rank_variables(settings), "PYTHONPATH": root}
    with (folder.parent / "node-1.log").open("wb") as log:
        process = subprocess.Popen(
            node_command(settings, str(folder), 1), env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.soak
def test_two_nodes_learn_as_one_and_come_back_when_one_dies(
    make_vlm: Any, config: Any, batches: list[Batch], tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    from dartsim.real.learners.fsdp.learner import FsdpLearner
    from dartsim.real.vlm.export import export

    vlm = make_vlm()

    def weights(learner: Any) -> dict[str, Any]:
        return load_file(Path(learner.weights().source) / "model.safetensors")

    alone = FsdpLearner(
        vlm, export(vlm, tmp_path / "a"), tmp_path / "one", config.replace(fsdp={"device": "cpu"}), seed=5
    )
    for batch in batches[:2]:
        alone.train(batch)
    wanted = weights(alone)
    alone.close()

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = FsdpConfig(
        ranks=2, nodes=2, address=f"127.0.0.1:{port}", interface="lo", device="cpu", start_seconds=120.0
    )
    learner = FsdpLearner(vlm, export(vlm, tmp_path / "b"), tmp_path / "two", config.replace(fsdp=settings), seed=5)
    try:
        with other_node(settings, (tmp_path / "two").resolve()) as node:
            learner.train(batches[0])
            first, second = learner.group.pids
            assert os.getpgid(first) != os.getpgid(second)
            os.kill(second, signal.SIGKILL)  # of the other machine: its torchrun ends, and is started again
            with pytest.raises(LearnerFault):
                learner.train(batches[1])
            learner.train(batches[1])
            found = weights(learner)
            assert found.keys() == wanted.keys()
            assert all(torch.equal(found[name], wanted[name]) for name in wanted)
            learner.close()
            assert node.wait(60) == 0  # the end of the run is the end there, too
    finally:
        learner.close()
