"""What the measurements say of updates, after a crash and when weights were lost."""

from dartsim.core.types import Batch, Group
from dartsim.observe import Recorder
from dartsim.observe.figures import staleness as turns
from dartsim.observe.figures import staleness_definitions
from dartsim.observe.recorder_state import restore_state, save_state, undo_update


def recorder():
    return Recorder(lambda: 0.0, num_envs=1, num_engines=1)


def batch(made, update, *versions):
    members = tuple(made.trajectory(number, versions=(version,)) for number, version in enumerate(versions))
    return Batch(update, 3, (Group(0, members[0].attempt.task, members, 0.0),))


def staleness(of):
    return {**turns(of), **staleness_definitions(of.staleness_trajectories)}


def test_staleness_by_every_definition_goes_on_after_a_crash(made):
    whole, before, after = recorder(), recorder(), recorder()
    for each in (whole, before):
        each.update_finished(batch(made, 1, 1, 3), {})
    restore_state(after, save_state(before))
    for each in (whole, after):
        each.update_finished(batch(made, 2, 3, 2), {})
    assert staleness(after) == staleness(whole)
    assert after.staleness_max == 2


def test_an_update_whose_weights_are_lost_was_never_there(made):
    one, both = recorder(), recorder()
    for each in (one, both):
        each.update_finished(batch(made, 1, 2, 3), {})
    lost = batch(made, 2, 0, 1)
    both.update_finished(lost, {})
    assert both.staleness_max == 3
    undo_update(both, lost.trajectories, lost.version)
    assert staleness(both) == staleness(one)
    assert both.staleness_max == 1
