"""A learner in an actor: conformance, its end under an update, updates whose answers got lost, there and back."""

import asyncio
import json
from functools import partial

import pytest

from dartsim.core.errors import LearnerFault, cause_of
from dartsim.core.types import Weights
from dartsim.testing import ports as checks


def make_learner():
    """Return what makes a learner whose weights are the updates it went through; a closure travels by value."""

    class Learner:
        def __init__(self):
            self.updates = 0
            self.been = []

        def train(self, batch):
            import time

            from dartsim.core.errors import LearnerFault
            from dartsim.core.types import UpdateResult

            if batch.update >= 100:
                raise LearnerFault("the loss is not finite")
            time.sleep(0.05 if batch.update < 50 else 30.0)
            self.been.append(batch.update)
            self.updates = batch.update
            return UpdateResult(self.weights(), {"learner/loss": 0.5})

        def weights(self):
            from dartsim.core.types import Weights

            return Weights(self.updates, list(self.been))

        def save(self, folder):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "learner.json").write_text(json.dumps([self.updates, self.been]))

        def save_model(self, folder):
            self.save(folder)

        def load(self, folder):
            self.updates, self.been = json.loads((folder / "learner.json").read_text())

    return Learner


@pytest.fixture
def learner(place, tmp_path):
    from dartsim.real.ray_cluster.learner import LearnerHost, RayLearner

    def make(every=1, **want):
        host = partial(LearnerHost, make_learner(), str(tmp_path / "learner"), every)
        return RayLearner(place("learner", host, **want), first=Weights(0, []))

    return make


def batch(update):
    return checks.sample_batch((checks.sample_trajectory(0), checks.sample_trajectory(1, reward=0.0)), update)


def test_a_learner_in_an_actor_keeps_what_the_port_promises(learner):
    async def main():
        made = learner()
        await checks.check_learner(made)
        with pytest.raises(LearnerFault, match="not finite"):
            await made.update(batch(100))
        result = await made.update(batch(2))
        assert (result.weights.source, made.updates, made.losses) == ([1, 2], 2, 0)

    asyncio.run(main())


def test_an_update_whose_actor_ends_did_not_happen(learner, end):
    async def main():
        made = learner()
        await made.update(batch(1))
        lost = asyncio.ensure_future(made.update(batch(60)))
        await asyncio.sleep(0.3)
        await end(made.part)
        async with asyncio.timeout(60.0):
            with pytest.raises(LearnerFault, match="update 60") as fault:
                await lost
            assert cause_of(fault.value) == "learner_lost"
            assert (await made.update(batch(2))).weights.source == [1, 2]
        assert made.losses == 1

    asyncio.run(main())


def test_an_update_whose_answer_got_lost_is_not_gone_on_from(learner):
    async def main():
        made = learner()
        await made.update(batch(1))
        forgotten = asyncio.ensure_future(made.update(batch(2)))
        await asyncio.sleep(0.02)
        forgotten.cancel()
        with pytest.raises(asyncio.CancelledError):
            await forgotten
        assert made.weights().version == 1
        assert (await made.update(batch(2))).weights.source == [1, 2]

    asyncio.run(main())


def test_a_closed_learner_can_be_saved_and_trains_no_more(learner, tmp_path):
    async def main():
        made = learner()
        await made.update(batch(1))
        made.close()
        await asyncio.to_thread(made.save, tmp_path / "state")
        assert json.loads((tmp_path / "state" / "learner.json").read_text()) == [1, [1]]
        with pytest.raises(LearnerFault, match="closed"):
            await made.update(batch(2))

    asyncio.run(main())


def test_closing_gives_up_the_update_under_way(learner):
    async def main():
        made = learner()
        running = asyncio.ensure_future(made.update(batch(60)))
        await asyncio.sleep(0.3)
        made.close()
        async with asyncio.timeout(20.0):
            with pytest.raises(LearnerFault, match="given up"):
                await running

    asyncio.run(main())


def test_checkpoints_every_few_updates_cost_those_since_the_last(tmp_path):
    from dartsim.real.ray_cluster.learner import LearnerHost

    folder = tmp_path / "few"

    async def main():
        host = LearnerHost(make_learner(), str(folder), 2)
        for update in range(1, 6):
            await host.update(batch(update), update - 1)
        after = LearnerHost(make_learner(), str(folder), 2)
        assert (await after.update(batch(6), 5)).weights.source == [1, 2, 3, 4, 6]

    asyncio.run(main())
    assert sorted(path.name for path in folder.iterdir()) == ["update-000004", "update-000006"]


def test_checkpoints_of_undone_updates_go_when_an_older_state_is_loaded(tmp_path):
    from dartsim.real.ray_cluster.learner import LearnerHost

    folder = tmp_path / "host"

    async def main():
        host = LearnerHost(make_learner(), str(folder), 1)
        for update in range(1, 9):
            await host.update(batch(update), update - 1)
            if update == 4:
                await host.do("save", 4, tmp_path / "run-4")
        host = LearnerHost(make_learner(), str(folder), 1)  # the run was killed, and goes on from its own checkpoint
        await host.do("load", 0, tmp_path / "run-4")
        await host.update(batch(5), 4)
        assert [path.name for path in host.checkpoints()] == ["update-000004", "update-000005"]
        host = LearnerHost(make_learner(), str(folder), 1)
        assert (await host.do("weights", 5)).source == [1, 2, 3, 4, 5]

    asyncio.run(main())


def test_a_learner_whose_checkpoints_are_gone_does_not_begin_anew(tmp_path):
    from dartsim.real.ray_cluster.learner import LearnerHost

    async def main():
        host = LearnerHost(make_learner(), str(tmp_path / "elsewhere"), 2)
        with pytest.raises(LearnerFault, match="no checkpoint of update 6 or before"):
            await host.update(batch(7), 6)

    asyncio.run(main())


def test_closing_cancels_nobody_who_has_their_answer():
    from dartsim.core.types import UpdateResult
    from dartsim.real.ray_cluster.learner import RayLearner

    class Part:
        def __init__(self):
            self.answer = asyncio.Event()

        async def placed(self, seconds):
            pass

        async def call(self, *args):
            await self.answer.wait()
            return UpdateResult(Weights(1))

    async def main(steps):
        part, told = Part(), []
        made = RayLearner(part, first=Weights(0))

        async def train():
            told.append((await made.update(batch(1))).weights.version)
            await asyncio.sleep(0.01)
            told.append("committed")

        training = asyncio.create_task(train())
        await asyncio.sleep(0.01)
        part.answer.set()
        for _ in range(steps):  # so far has the answer come
            await asyncio.sleep(0)
        made.close()
        try:
            await training
        except LearnerFault:
            assert told == []
        else:
            assert told == [1, "committed"]

    for steps in range(5):
        asyncio.run(main(steps))
