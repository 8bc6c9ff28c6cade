"""What the driver keeps on disk and when, with ranks that only pretend."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from dartsim.config.sections.trainer import FsdpConfig
from dartsim.core.errors import LearnerFault
from dartsim.real.learners.fsdp.group import RankGroup
from dartsim.real.learners.fsdp.learner import FsdpLearner
from dartsim.real.learners.gradient_steps import TINY


class Pretended:
    """Ranks that write what they would write, one number a file."""

    def __init__(self):
        self.running = False
        self.state = 0
        self.dies = False
        self.orders: list[str] = []

    def start(self):
        self.running, self.state = True, 0

    def kill(self):
        self.running = False

    def ask(self, order: dict[str, Any], seconds: float) -> dict[str, Any]:
        self.orders.append(order["do"])
        if order["do"] == "train":
            if self.dies:
                self.running = self.dies = False
                raise LearnerFault("a rank died")
            self.state = order["update"]
            self._write(order.get("checkpoint"))
        elif order["do"] == "save":
            self._write(order["folder"])
        elif order["do"] == "load":
            self.state = json.loads((Path(order["folder"]) / "learner.json").read_text())["updates"]
            self.state = self.state if order["version"] is None else order["version"]
        if order.get("weights"):
            Path(order["weights"]).mkdir(parents=True, exist_ok=True)
        return {"updates": self.state, "metrics": {}}

    def _write(self, folder: str | None):
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
            (Path(folder) / "learner.json").write_text(json.dumps({"updates": self.state, "seed": 0}))


@pytest.fixture
def make(make_vlm, tmp_path) -> Callable[..., tuple[FsdpLearner, Any]]:
    def learner(checkpoint_every_updates=1, **settings) -> tuple[FsdpLearner, Any]:
        (tmp_path / "model").mkdir()
        config = TINY.replace(fsdp=settings, checkpoint_every_updates=checkpoint_every_updates)
        found = FsdpLearner(make_vlm(), tmp_path / "model", tmp_path / "disk", config)
        group: Any = Pretended()
        found.group = group
        return found, group

    return learner


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_newest_weights_and_the_last_checkpoint_stay(make, batches, tmp_path):
    learner, _ = make(keep_weights=2)
    assert learner.weights().source == tmp_path / "model"
    for batch in batches:
        learner.train(batch)
        if batch.update == 1:
            learner.save(tmp_path / "first")
    disk = tmp_path / "disk"
    assert names(disk / "weights") == ["version-000003", "version-000004"]
    assert names(disk / "checkpoints") == ["update-000004"]
    assert not (disk / "batch").exists()
    learner.load(tmp_path / "first")
    assert learner.updates == learner.weights().version == 1
    assert learner.weights().source == disk / "weights" / "version-000001"
    assert names(disk / "checkpoints") == ["update-000001"]


def test_ranks_that_died_go_on_from_the_last_checkpoint(make, batches):
    learner, group = make(checkpoint_every_updates=2)
    for batch in batches[:3]:
        learner.train(batch)
    group.dies = True
    with pytest.raises(LearnerFault):
        learner.train(batches[3])
    assert learner.updates == 3
    learner.train(batches[3])
    assert group.orders == ["train"] * 4 + ["load", "train"]
    assert learner.updates == group.state == 4


def test_a_closed_learner_can_be_saved_but_not_trained(make, batches, tmp_path):
    learner, group = make()
    learner.close()
    learner.save(tmp_path / "early")  # there was no update: the ranks are asked once more
    assert (tmp_path / "early" / "learner.json").is_file()
    assert not group.running
    learner.save_model(tmp_path / "copy")
    with pytest.raises(LearnerFault, match="closed"):
        learner.train(batches[0])


def test_ranks_that_cannot_start_are_a_fault_with_their_log(tmp_path):
    group = RankGroup(tmp_path, settings=FsdpConfig(ranks=1), prepare=lambda: None)
    with pytest.raises(LearnerFault, match=r"setup\.json.*ranks\.log"):
        group.start()
    assert not group.running
    assert "FileNotFoundError" in group.log.read_text()
    with pytest.raises(LearnerFault, match="not running"):
        group.ask({}, 1.0)


def test_stand_ins_publish_weights_of_the_type_that_engines_have(make_vlm, batches, tmp_path):
    from dartsim.real.stand_ins.ranks import StandInRanks
    from dartsim.real.vlm.export import export, read_weights

    model = export(make_vlm(), tmp_path / "model")
    learner = FsdpLearner(make_vlm(), model, tmp_path / "disk", TINY, export_dtype="bfloat16", group=StandInRanks)
    learner.train(batches[0])
    published = read_weights(Path(learner.weights().source), ())
    assert {str(tensor.dtype) for tensor in published.values()} == {"torch.bfloat16"}
    assert published.keys() == read_weights(model, ()).keys()
