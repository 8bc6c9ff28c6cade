"""Ranks in actors: conformance of the learner over them, the end of one under an update, and between two."""

import asyncio
import os
import signal
import socket
from functools import partial

import pytest

from dartsim.config.sections.trainer import FsdpConfig
from dartsim.core.errors import ConfigError, LearnerFault
from dartsim.testing import ports as checks

pytestmark = pytest.mark.anyio


@pytest.fixture
def learner(local_ray, make_vlm, tmp_path):
    """Make a learner of two ranks, with its batches: ``learner(**options of the actors)``."""
    from dartsim.real.learners.fsdp.learner import FsdpLearner
    from dartsim.real.learners.gradient_steps import TINY
    from dartsim.real.ray_cluster.ranks import RayRanks
    from dartsim.real.vlm.export import export

    made = []

    def make(**options):
        vlm = make_vlm()
        config = TINY.replace(fsdp={"ranks": 2, "device": "cpu"})
        group = partial(RayRanks, options={"num_cpus": 0.1, **options})
        model = export(vlm, tmp_path / "model")
        made.append(FsdpLearner(vlm, model, tmp_path / "ranks", config, seed=5, group=group))
        return made[-1]

    yield make
    for learner in made:
        learner.close()


@pytest.fixture
def batches(make_vlm, play_batch):
    from dartsim.real.vlm import VlmPolicy

    return [play_batch(VlmPolicy(make_vlm()), update, 0) for update in range(1, 6)]


async def test_a_learner_over_actors_keeps_what_the_port_promises_and_an_update_whose_rank_ends_did_not_happen(
    learner, batches
):
    made = learner()
    await checks.check_learner(made, batches[0])
    assert len(set(made.group.pids)) == 2
    assert os.getpid() not in made.group.pids
    os.kill(made.group.pids[1], signal.SIGKILL)
    with pytest.raises(LearnerFault, match="a rank of the learner"):
        await made.update(batches[1])
    assert made.updates == 1
    assert not made.group.running
    assert (await made.update(batches[1])).weights.version == made.updates == 2


async def test_closing_ends_the_update_under_way(learner, batches):
    made = learner()
    running = asyncio.ensure_future(made.update(batches[0]))
    await asyncio.sleep(0.5)
    made.close()
    with pytest.raises(LearnerFault):
        await running


def test_ranks_that_no_node_has_room_for_are_a_fault(learner, batches, monkeypatch):
    monkeypatch.setattr(FsdpConfig, "start_seconds", 1.0)
    with pytest.raises(LearnerFault, match=r"within 1 s.*'num_gpus': 1000"):
        learner(num_gpus=1000).train(batches[0])


def test_a_folder_that_a_node_does_not_see_is_named(tmp_path):
    from dartsim.real.ray_cluster.ranks import RankActor

    with pytest.raises(ConfigError, match=r"trainer\.fsdp\.folder"):
        RankActor().join(str(tmp_path), 0, 1, "tcp://10.0.0.1:1")


def test_ranks_talk_over_the_interface_of_their_nodes_address():
    from dartsim.real.ray_cluster.ranks import interface_of

    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("198.51.100.7") is None  # of no machine
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no route but the loopback")
        own = asking.getsockname()[0]
    assert interface_of(own) in {name for _, name in socket.if_nameindex()} - {"lo"}
