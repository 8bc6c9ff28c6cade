"""Combinations that could never work are refused, all of them at once, saying which setting to change."""

import pytest

from dartsim.config import load
from dartsim.core.errors import ConfigError

PRESET = "dart-measured"
"""Its attempts and turns are the same for every task."""

BROKEN = [
    "curation.batch.min_groups=9",
    "curation.attempts.min_group_size=9 curation.attempts.rule=by_success",
    "curation.groups.min_size=9",
    "curation.groups.min_size=3 curation.attempts.rule=by_success",
    "curation.admission.ahead_batches=0.6",
    "curation.admission.ahead_batches=1.6 trainer.publish_every=2",
    "trainer.publish_every=3",
    "curation.admission.ahead_batches=1.5 trainer.publish_wait=batch curation.admission.waiting_batches=1.0",
    "trainer.publish_wait=batch curation.admission.waiting_batches=1.0 trainer.publish_every=2",
    "curation.batch.wait_age=1 trainer.publish_every=2",
    "rollout.lockstep=true",
    "policy.max_images=4 policy.images_after_cut=5",
    "rollout.warm_envs=2 desktop.revert=snapshot",
    "desktop.states_gib=200.0 desktop.revert=snapshot",
    "desktop.revert=fork tasks.source=gym gym.env=x:Y policy.kind=vlm",
    "desktop.revert=snapshot backend.desktops=desktop tasks.source=desktop rollout.warm_envs=1 policy.kind=vlm",
    "desktop.revert=fork backend.desktops=osworld tasks.source=osworld desktop.disk=y tasks.folder=x policy.kind=vlm",
    "tasks.folder=x",
    "tasks.source=osworld",
]
"""Overrides; the message names the first one's key."""


@pytest.mark.parametrize("overrides", BROKEN)
def test_a_combination_that_cannot_work_is_refused(overrides):
    with pytest.raises(ConfigError) as refused:
        load(PRESET, overrides=overrides.split())
    message = str(refused.value)
    assert message.startswith("the configuration cannot work:\n  - ")
    assert message.count("\n") == 1
    assert overrides.partition("=")[0] in message


@pytest.mark.parametrize(
    "overrides",
    [
        ["curation.batch.min_groups=8"],
        ["curation.groups.min_size=8"],
        ["curation.groups.min_size=2", "curation.attempts.rule=by_success"],
        ["curation.admission.ahead_batches=0.75"],
        ["curation.admission.ahead_batches=1.75", "trainer.publish_every=2"],
        ["trainer.publish_every=2"],
        ["trainer.publish_every=2", "curation.batch.wait_age=2"],
        ["trainer.publish_every=3", "curation.staleness.max_staleness=none"],
        [
            "trainer.publish_wait=batch",
            "curation.admission.waiting_batches=1.0",
            "curation.admission.ahead_batches=1.75",
        ],
        ["rollout.lockstep=true", "trainer.wait_for_sync=true"],
        ["rollout.lockstep=true", "rollout.sync.workers_at_a_time=all"],
        ["tasks.source=osworld", "tasks.folder=x"],
    ],
    ids=" ".join,
)
def test_what_is_just_possible_is_not(overrides):
    load(PRESET, overrides=overrides)


def test_all_broken_rules_are_named_at_once():
    with pytest.raises(ConfigError) as refused:
        load(PRESET, overrides=["curation.batch.min_groups=9", "tasks.source=osworld"])
    assert str(refused.value).count("\n  - ") == 2
