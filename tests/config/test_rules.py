"""Combinations that could never work are refused, all of them at once, saying which setting to change."""

import pytest

from dartsim.config import from_tree, load, preset
from dartsim.config.load import merge, parse_override
from dartsim.config.rules import broken_rules, check
from dartsim.config.schema import Config
from dartsim.core.errors import ConfigError

PRESET = "dart-measured"
"""Its attempts and turns are the same for every task."""

BROKEN = [
    (["curation.batch.min_groups=9"], "no batch could be large enough", ["min_groups = 9", "max_groups = 8"]),
    (
        ["curation.attempts.rule=by_success", "curation.attempts.min_group_size=9"],
        "curation.attempts.min_group_size = 9 is more than curation.attempts.group_size = 8",
        ["Lower the first"],
    ),
    (
        ["curation.groups.min_size=9"],
        "curation.groups.min_size = 9 is more than the 8 attempts",
        ["always be dropped"],
    ),
    (
        ["curation.groups.min_size=3", "curation.attempts.rule=by_success"],
        "curation.groups.min_size = 3 is more than the 2 attempts",
        ["raise curation.attempts"],
    ),
    (
        ["curation.max_ahead=47"],
        "a batch needs 48 attempts",
        ["curation.max_ahead = 47", "at least 48", "wait forever"],
    ),
    (
        ["curation.max_ahead=111", "trainer.publish_every=2"],
        "a publication needs 112 attempts (14 groups of 8",
        ["trainer.publish_every = 2", "curation.max_ahead = 111", "at least 112", "wait forever"],
    ),
    (
        ["trainer.publish_every=3"],
        "curation.staleness.max_staleness = 1 is too small for trainer.publish_every = 3",
        ["2 versions ahead", "at least 2", "wait forever"],
    ),
    (
        ["trainer.publish_wait=running", "curation.max_ahead=64"],
        'trainer.publish_wait = "running" waits for groups that were begun',
        ["curation.max_ahead = 64", "wait forever", "curation.admission.ahead_batches"],
    ),
    (
        [
            "trainer.publish_wait=batch",
            "curation.admission.waiting_batches=1.0",
            "curation.admission.ahead_batches=1.5",
        ],
        "curation.admission.ahead_batches = 1.5 admits 12 groups",
        ["14 are needed", "at least 1.75"],
    ),
    (
        ["trainer.publish_wait=batch", "curation.admission.waiting_batches=1.0", "trainer.publish_every=2"],
        "curation.staleness.max_staleness of at least 2 or none",
        ['trainer.publish_wait = "batch"'],
    ),
    (
        ["curation.max_ahead=129"],
        "more than the staleness bound 1 can use",
        ["1 + 1 batches of 8 x 8 are 128", "at most 128", "dropped as stale"],
    ),
    (
        ["curation.batch.wait_age=1", "trainer.publish_every=2"],
        "curation.batch.wait_age = 1 waits for groups begun 1 versions ago",
        ["trainer.publish_every = 2", "wait forever", "at least 2"],
    ),
    (
        ["rollout.lockstep=true"],
        "weights cannot change under it worker by worker",
        ['workers_at_a_time = "all"', "trainer.wait_for_sync = true"],
    ),
    (
        ["policy.max_images=4", "policy.images_after_cut=5"],
        "policy.images_after_cut = 5 is more than policy.max_images = 4",
        ["policy.images_after_cut = 4"],
    ),
    (
        ["desktop.revert=snapshot", "rollout.warm_envs=2"],
        "2 spares would never be used",
        ["rollout.warm_envs = 0"],
    ),
    (
        ["desktop.revert=snapshot", "desktop.snapshots.max_gib=200.0"],
        "leaves no memory for desktops on hosts of 128 GiB",
        ["desktop.snapshots.max_gib = 200"],
    ),
    (
        ["desktop.revert=fork", "tasks.source=gym", "gym.env=x:Y", "policy.kind=vlm"],
        'needs desktops that save their state, and those of backend.desktops = "sim" with tasks.source = "gym"',
        ['desktop.revert = "boot"'],
    ),
    (
        [
            "desktop.revert=snapshot",
            "backend.desktops=desktop",
            "tasks.source=desktop",
            "policy.kind=vlm",
            "rollout.warm_envs=1",
        ],
        'do not: for containers it would take CRIU; desktop.variant = "vm"',
        ['"fork" with rollout.warm_envs of 1 or more'],
    ),
    (
        [
            *("desktop.revert=fork", "backend.desktops=osworld", "desktop.disk=y"),
            *("tasks.source=osworld", "tasks.folder=x", "policy.kind=vlm"),
        ],
        "OSWorld's image gives QEMU a CPU with migratable=no and a writable firmware file",
        ['desktop.revert = "boot"'],
    ),
    (["tasks.source=osworld"], 'tasks.source = "osworld" needs tasks.folder', ["test_all.json"]),
    (["tasks.folder=x"], "tasks.folder is given", ['Set tasks.source = "osworld"']),
]


@pytest.mark.parametrize(("overrides", "found", "more"), BROKEN, ids=[found for _, found, _ in BROKEN])
def test_a_combination_that_cannot_work_is_refused(overrides, found, more):
    with pytest.raises(ConfigError) as refused:
        load(preset_name=PRESET, overrides=overrides)
    message = str(refused.value)
    assert message.startswith("the configuration cannot work:\n  - ")
    assert message.count("\n") == 1
    for text in (found, *more):
        assert text in message


@pytest.mark.parametrize(
    "overrides",
    [
        ["curation.batch.min_groups=8"],
        ["curation.groups.min_size=8"],
        ["curation.groups.min_size=2", "curation.attempts.rule=by_success"],
        ["curation.max_ahead=48"],
        ["curation.max_ahead=128"],
        ["curation.max_ahead=112", "trainer.publish_every=2"],
        ["trainer.publish_every=2"],
        ["trainer.publish_every=2", "curation.batch.wait_age=2"],
        ["trainer.publish_every=3", "curation.staleness.max_staleness=none"],
        [
            "trainer.publish_wait=batch",
            "curation.admission.waiting_batches=1.0",
            "curation.admission.ahead_batches=1.75",
        ],
        ["curation.max_ahead=129", "curation.staleness.max_staleness=2"],
        ["curation.max_ahead=100000", "curation.staleness.max_staleness=none"],
        ["rollout.lockstep=true", "trainer.wait_for_sync=true"],
        ["rollout.lockstep=true", "rollout.sync.workers_at_a_time=all"],
        ["tasks.source=osworld", "tasks.folder=x"],
    ],
    ids=" ".join,
)
def test_what_is_just_possible_is_not(overrides):
    load(preset_name=PRESET, overrides=overrides)


def test_all_broken_rules_are_named_at_once():
    with pytest.raises(ConfigError) as refused:
        load(preset_name=PRESET, overrides=["curation.batch.min_groups=9", "tasks.folder=x"])
    assert str(refused.value).count("\n  - ") == 2


def test_a_configuration_that_breaks_no_rule_is_returned():
    config = from_tree(preset(PRESET))
    assert check(config) is config
    assert list(broken_rules(config)) == []
    tree = merge(preset(PRESET), parse_override("curation.batch.min_groups=9"))
    assert len(list(broken_rules(Config.model_validate(tree)))) == 1
