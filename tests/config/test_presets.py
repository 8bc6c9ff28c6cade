"""The presets hold what they say: the paper's method, the released code's, and the run that was measured."""

import pytest

from dartsim.config import Config, load, preset, presets
from dartsim.config.sections.trainer import ObjectiveConfig
from dartsim.config.settings import valid_keys


def leaves(tree, place=""):
    """Return the settings of a tree by dotted name."""
    if not isinstance(tree, dict):
        return {place: tree}
    return {name: value for key, part in tree.items() for name, value in leaves(part, f"{place}.{key}").items()}


def differences(first: Config, second: Config) -> set[str]:
    one, other = leaves(first.model_dump()), leaves(second.model_dump())
    return {name.lstrip(".") for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


GPUS = ("1gpu", "8gpu", "16gpu")


@pytest.mark.parametrize("gpus", GPUS)
def test_our_presets_of_osworld_schedule_as_dartsim_and_train_as_dart(gpus):
    ours, dart, dartsim = (load(name) for name in (f"osworld-dartsim-{gpus}", f"osworld-{gpus}", "dartsim"))
    for section in ("admission", "staleness", "task_filter"):
        assert getattr(ours.curation, section) == getattr(dartsim.curation, section)
    assert ours.curation.batch.rule == dartsim.curation.batch.rule == "started"
    assert (ours.rollout.routing, ours.rollout.sync.mode) == (dartsim.rollout.routing, "keep")
    assert ours.curation.selection.keep == "stored"
    assert ours.rollout.warm_envs > 0
    for section in ("attempts", "turn_limit", "pool"):
        assert getattr(ours.curation, section) == getattr(dart.curation, section)
    assert ours.trainer.objective == dart.trainer.objective
    assert (ours.policy, ours.tasks) == (dart.policy.replace(images_after_cut=2), dart.tasks)
    assert ours.policy.images_after_cut == dartsim.policy.images_after_cut
    assert ours.trainer.optimizer.pack == dartsim.trainer.optimizer.pack == "trajectories"


def test_a_preset_may_build_on_another():
    assert preset("osworld-dartsim-8gpu")["tasks"] == preset("osworld-8gpu")["tasks"]
    assert preset("osworld-dartsim-16gpu")["curation"] == preset("osworld-dartsim-8gpu")["curation"]
    assert "preset" not in preset("osworld-dartsim-16gpu")


def test_dart_is_the_paper_s_method():
    config = load("dart")
    curation = config.curation
    assert config.trainer.objective == ObjectiveConfig()
    assert (curation.attempts.rule, curation.attempts.group_size, curation.attempts.threshold) == ("by_success", 8, 0.6)
    assert curation.turn_limit.rule == "by_success"
    assert curation.pool.enabled
    assert (curation.selection.rule, curation.selection.share) == ("high_entropy", 0.8)
    assert (config.policy.max_images, config.policy.max_texts) == (5, 35)


@pytest.mark.parametrize("name", sorted(presets()))
def test_a_preset_names_its_departures(name):
    about = presets()[name]["about"]
    assert set(about) == {"title", "source", "departures"}
    assert about["departures"]
    keys = {key.lstrip(".") for key in leaves(preset(name))}
    # Hosts and options have names of their own; what is below them was checked by loading the preset.
    assert {
        key for key in keys if not (key.startswith("desktop.hosts.") or ".options." in key or "_options." in key)
    } <= set(valid_keys())
    assert load(name).preset == name
