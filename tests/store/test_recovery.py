"""What a run that ended anyhow left behind, and from where it goes on."""

import pytest

from dartsim.core.errors import InvariantViolated
from dartsim.core.types import Group, TrajectoryState
from dartsim.curation.success_pool import SuccessPool
from dartsim.store.blobs import BlobStore
from dartsim.store.checkpoints import write_checkpoint
from dartsim.store.load import load_trajectories


def checkpoint(place, update):
    return write_checkpoint(place.folder / "checkpoints", update, lambda folder: (folder / "w").write_text(str(update)))


def train(place, store, made, update, *, with_checkpoint=True, first=None):
    """One update of one trajectory, which has the update's number."""
    trajectory = made.plain(update if first is None else first)
    if trajectory.attempt.id not in store.live:
        store.record(trajectory)
        store.eligible(Group(trajectory.attempt.group, made.TASK, (trajectory,), 99.0))
    batch = made.batch([trajectory], update=update)
    store.lease(batch)
    store.trained(batch, update, checkpoint=checkpoint(place, update) if with_checkpoint else None)
    made.settle(store)


def opened(place):
    return place.store(checkpoints=place.folder / "checkpoints")


def test_an_empty_run_begins_at_the_beginning(place):
    recovered = opened(place).recover()
    assert (recovered.update, recovered.version, recovered.checkpoint) == (0, 0, None)
    assert (recovered.returned, recovered.undone, recovered.torn) == ((), (), ())


def test_without_checkpoints_every_finished_update_counts(place, made):
    store = place.store()
    train(place, store, made, 1, with_checkpoint=False)
    store.record(made.plain(5, group=9))
    store.lease(made.batch([made.plain(5, group=9)], update=2))
    made.settle(store)
    recovered = place.store().recover()
    assert (recovered.update, recovered.version, recovered.returned, recovered.undone) == (1, 1, (5,), ())


def test_updates_that_no_checkpoint_contains_are_undone(place, made):
    store = opened(place)
    train(place, store, made, 1)
    train(place, store, made, 2, with_checkpoint=False)
    train(place, store, made, 3, with_checkpoint=False)
    again = opened(place)
    recovered = again.recover()
    assert (recovered.update, recovered.undone, recovered.returned) == (1, (2, 3), (2, 3))
    assert recovered.checkpoint == place.folder / "checkpoints" / "update-00000001"
    assert again.live == {2: TrajectoryState.ELIGIBLE, 3: TrajectoryState.ELIGIBLE}
    train(place, again, made, 2)
    assert opened(place).recover().update == 2


def test_a_checkpoint_without_its_transaction_is_removed(place, made):
    store = opened(place)
    train(place, store, made, 1)
    store.record(made.plain(2))
    store.lease(made.batch([made.plain(2)], update=2))
    made.settle(store)
    orphan = checkpoint(place, 2).folder
    half = orphan.with_name("update-00000003.partial")
    half.mkdir()
    recovered = opened(place).recover()
    assert (recovered.update, recovered.returned) == (1, (2,))
    assert recovered.removed == (orphan, half)
    assert [path.name for path in (place.folder / "checkpoints").iterdir()] == ["update-00000001"]


def test_a_torn_checkpoint_is_reported_and_the_one_before_it_used(place, made):
    store = opened(place)
    for update in (1, 2):
        train(place, store, made, update)
    (place.folder / "checkpoints" / "update-00000002" / "w").write_text("x")
    recovered = opened(place).recover()
    assert (recovered.update, recovered.undone, recovered.returned) == (1, (2,), (2,))
    assert len(recovered.torn) == 1
    assert "update-00000002/w is not what the checkpoint's manifest.json says" in recovered.torn[0]


def test_a_checkpoint_from_elsewhere_does_not_count(place, made):
    store = opened(place)
    train(place, store, made, 1)
    (place.folder / "checkpoints" / "update-00000001").rename(place.folder / "mine")
    write_checkpoint(place.folder / "checkpoints", 1, lambda folder: (folder / "other").touch())
    recovered = opened(place).recover()
    assert (recovered.update, recovered.checkpoint, recovered.undone) == (0, None, (1,))
    assert "is another checkpoint than that of update 1" in recovered.torn[0]


def test_recovering_twice_changes_nothing_more(place, made):
    store = opened(place)
    train(place, store, made, 1)
    train(place, store, made, 2, with_checkpoint=False)
    first, second = opened(place).recover(), opened(place).recover()
    assert first.undone == (2,)
    assert (second.update, second.returned, second.undone, second.removed) == (1, (), (), ())


def test_old_checkpoints_go(place, made):
    store = opened(place)
    for update in range(1, 5):
        train(place, store, made, update)
    names = sorted(path.name for path in (place.folder / "checkpoints").iterdir())
    assert names == ["update-00000003", "update-00000004"]
    assert opened(place).recover().checkpoint.name == "update-00000004"


def test_a_checkpoint_of_another_update_is_refused(place, made):
    store = opened(place)
    store.record(made.plain(1))
    store.lease(made.batch([made.plain(1)]))
    with pytest.raises(InvariantViolated, match="update 1 comes with the checkpoint of update 7"):
        store.trained(made.batch([made.plain(1)]), 1, checkpoint=checkpoint(place, 7))
    store.release(made.batch([made.plain(1)]))


def kept(store):
    return [trajectory.attempt.id for trajectory in load_trajectories(store.database, on_torn=lambda torn: None)]


def test_turns_of_what_may_be_undone_stay(place, made):
    store = opened(place)
    train(place, store, made, 1, with_checkpoint=False)
    assert kept(store) == [1]
    train(place, store, made, 2)
    assert kept(store) == []


def test_a_success_that_left_the_pool_stays_while_it_may_be_undone(place, made):
    store, pool = opened(place), SuccessPool()
    pool.learn([made.plain(1)], now=1.0)
    store.record(made.plain(1))
    made.settle(store, pool.stored("check"))
    train(place, store, made, 1, with_checkpoint=False)
    assert kept(store) == [1]
    train(place, store, made, 2)
    assert kept(store) == []


def test_screenshots_without_a_row_are_removed(place, made):
    blobs = BlobStore(place.folder / "screens")
    store = place.store(blobs=blobs)
    store.record(made.ended(0))
    made.settle(store)
    store.record(made.ended(1))  # crashes before it is settled
    (blobs.folder / "ab").mkdir(exist_ok=True)
    (blobs.folder / "ab" / "abc.png.7-0.partial").write_bytes(b"half")
    before = len(list(blobs.folder.glob("*/*")))
    again = place.store(blobs=blobs)
    again.recover()
    assert len(list(blobs.folder.glob("*/*"))) == before - 4
    assert len(list(load_trajectories(again.database, blobs=blobs))) == 1


@pytest.mark.parametrize("out", ["{}", "../outside", "..", ".", ""])
def test_a_row_that_names_another_folder_than_a_checkpoints_removes_nothing(place, made, out):
    outside = place.folder / "outside"
    (outside / "kept").mkdir(parents=True)
    store = opened(place)
    for update in (1, 2):
        train(place, store, made, update)
    rename = 'UPDATE checkpoints SET folder = ? WHERE "update" = ?'
    store.database.execute(rename, (out.format(outside), 1))
    train(place, store, made, 3)  # the first one is outdated
    store.database.execute(rename, (out.format(outside), 3))
    recovered = opened(place).recover()
    assert (recovered.update, len(recovered.torn)) == (2, 1)
    assert (outside / "kept").is_dir()
    assert (place.folder / "checkpoints" / "update-00000002").is_dir()
