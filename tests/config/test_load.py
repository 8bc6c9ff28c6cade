"""Reading a configuration: what wins, what is refused and how it is said, and that it can be written and read."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.config import Config, from_tree, load, merge, preset, presets, to_toml
from dartsim.config.load import parse_override
from dartsim.config.settings import check_setting, describe
from dartsim.core.errors import ConfigError
from dartsim.rollout.routers.round_robin import RoundRobin
from dartsim.rollout.routers.session_affine import SessionAffine


def refused(*overrides):
    with pytest.raises(ConfigError) as error:
        load(overrides=overrides)
    return str(error.value)


# -- what wins ------------------------------------------------------------------------------------


def test_a_file_goes_before_its_preset_and_an_override_before_the_file(tmp_path):
    file = tmp_path / "my.toml"
    file.write_text('preset = "coupled"\n[rollout]\nnum_envs = 50\nnum_workers = 3\n')
    config = load(file, overrides=["rollout.num_workers=2"])
    assert config.preset == "coupled"
    assert (config.rollout.num_envs, config.rollout.num_workers, config.rollout.lockstep) == (50, 2, True)


def test_an_override_changes_no_preset(tmp_path):
    """What a run leaves behind sets everything: under another preset's name it would be the same run."""
    file = tmp_path / "my.toml"
    file.write_text('preset = "coupled"\n')
    assert load(file).rollout.lockstep
    for scheduler in (file, "coupled"):
        with pytest.raises(ConfigError, match="'coupled'"):
            load(scheduler, overrides=["preset=dart"])


def test_an_unknown_key_of_a_file_names_the_file(tmp_path):
    file = tmp_path / "my.toml"
    file.write_text("[rollout]\nnum_env = 3\n")
    with pytest.raises(ConfigError, match=r"my\.toml"):
        load(file)


def test_a_scheduler_is_a_preset_or_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load("areal-eta4") == load(Path("areal-eta4"))
    assert load(load("areal-eta4")) == load("areal-eta4")
    with pytest.raises(ConfigError, match="no configuration file or run areal-eta; did you mean 'areal-eta"):
        load("areal-eta")


def test_a_workload_goes_over_a_preset_with_a_surrogate_policy():
    with pytest.raises(ConfigError, match="'tiny'"):
        load("tiny", on="laptop")


def test_later_overrides_win_and_others_of_the_same_table_stay():
    config = load(overrides=["run.hours=3", "run.seed=5", "run.hours=4"])
    assert (config.run.hours, config.run.seed) == (4.0, 5)


def test_a_table_can_be_an_override():
    config = load(overrides=["cluster.env.latency={ step = 1.0 }", "cluster.env.latency.boot=2.0"])
    assert config.cluster.env.latency == {"step": 1.0, "boot": 2.0}


# -- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a.b=1", {"a": {"b": 1}}),
        (" a . b = true ", {"a": {"b": True}}),
        ("a=word", {"a": "word"}),
        ('a="quoted word"', {"a": "quoted word"}),
        ("a=/some/path=x", {"a": "/some/path=x"}),
        ("a=", {"a": ""}),
        ("a=none", {"a": "none"}),
    ],
)
def test_an_override_is_read_as_toml_or_as_a_word(text, tree):
    assert parse_override(text) == tree


@pytest.mark.parametrize("text", ["run.hours", "=3", "a..b=3", ".a=3", ""])
def test_an_override_without_a_key_or_a_value_is_refused(text):
    assert refused(text) == f"an override is written section.key=value, got {text!r}"


def test_none_switches_a_setting_off_that_can_be_off():
    overrides = ["curation.staleness.max_staleness=none", "surrogate.mean_success=none"]
    config = load(overrides=overrides)
    assert (config.curation.staleness.max_staleness, config.surrogate.mean_success) == (None, None)


@pytest.mark.parametrize(
    ("override", "wanted"),
    [
        ("rollout.num_envs=30.0", "rollout.num_envs = 30.0: wanted a valid integer"),
        ("rollout.num_envs=0", "rollout.num_envs = 0: wanted greater than or equal to 1"),
        ("run.hours=24h", "run.hours = '24h': wanted a valid number. Hours of the run's time, simulated or real."),
        ("run.hours=0", "run.hours = 0: wanted greater than 0"),
        ("run.hours=inf", "run.hours = inf: wanted a finite number"),
        ("run.seed=-1", "run.seed = -1: wanted greater than or equal to 0"),
        ("run=3", "run = 3: wanted a table"),
        ("rollout.lockstep=1", "rollout.lockstep = 1: wanted a valid boolean"),
        ("rollout.sync.mode=drian", "'drain', 'keep' or 'restart'. What happens to"),
        ("rollout.sync.workers_at_a_time=two", "= 'two': wanted a valid integer or 'all'"),
        ("cluster.faults.kinds.step_failed.share=2.0", "= 2.0: wanted less than or equal to 1"),
    ],
)
def test_a_wrong_value_is_refused_with_what_was_wanted(override, wanted):
    message = refused(override)
    assert message.startswith("the configuration has wrong values:\n  - ")
    assert wanted in message
    assert message.count("\n") == 1


def test_all_wrong_values_are_named_at_once():
    assert refused("run.hours=x", "rollout.num_envs=x").count("\n  - ") == 2


# -- unknown keys ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "nearest"),
    [
        ("cluster.engine.reload_minutes=5", "cluster.engine.reload_seconds"),
        ("rollot.num_envs=3", "rollout"),
        ("num_envs=3", "rollout.num_envs"),
        ("rollout.seed=3", "run.seed"),
        ("rollout.nope=3", None),
        ("cluster.envs.profile=dart", "cluster.env"),
        ("curation.max_staleness=3", None),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_valid_one(override, nearest):
    message = refused(override)
    assert message.startswith("unknown key '")
    if nearest is not None:
        assert message.endswith(f"did you mean {nearest!r}?")


def test_an_unknown_key_in_the_tables_of_a_setting_is_refused_with_the_nearest():
    assert "'desktop.hosts.vm.urll'; did you mean 'url'?" in refused('desktop.hosts.vm.urll="unix:///x"')


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"[run\nhours = 3", b"\xff\xfe"])
def test_a_file_that_is_no_toml_is_named(tmp_path, content):
    file = tmp_path / "bad.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"bad\.toml is not TOML"):
        load(file)


# -- the schema -----------------------------------------------------------------------------------


def test_every_setting_has_a_meaning_and_a_default_that_is_valid_toml():
    settings = describe()
    assert len(settings) > 60
    for setting in settings:
        assert setting.meaning, setting.key
        assert "value" in tomllib.loads(f"value = {setting.default}")


def test_merging_changes_neither_tree():
    base, over = {"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 9}, "e": 4}
    assert merge(base, over) == {"a": {"b": 9, "c": 2}, "d": 3, "e": 4}
    assert (base, over) == ({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 9}, "e": 4})
    assert merge({"a": 1}, {"a": {"b": 2}}) == {"a": {"b": 2}}


# -- there and back -------------------------------------------------------------------------------

SECONDS = st.floats(0.001, 1e6)
TREES = st.fixed_dictionaries(
    {},
    optional={
        "run.hours": st.floats(0.001, 1e4),
        "run.seed": st.integers(0, 2**62),
        "tasks.count": st.integers(1, 10**6),
        "surrogate.mean_success": st.one_of(st.none(), st.floats(0, 1)),
        "rollout.num_envs": st.integers(1, 10**5),
        "rollout.unit": st.sampled_from(["rollout", "task", "batch"]),
        "rollout.sync.workers_at_a_time": st.one_of(st.just("all"), st.integers(1, 100)),
        "rollout.sync.mode": st.sampled_from(["drain", "keep", "restart"]),
        "rollout.limits.step_seconds": SECONDS,
        "curation.staleness.max_staleness": st.one_of(st.none(), st.integers(0, 9)),
        "curation.attempts.max_replacements": st.integers(0, 5),
        "cluster.faults.heal_after_hours": st.one_of(st.none(), st.floats(0.1, 100.0)),
        "cluster.env.latency": st.dictionaries(
            st.sampled_from(["boot", "step"]),
            st.one_of(SECONDS, st.fixed_dictionaries({"lognormal": st.lists(SECONDS, min_size=2, max_size=2)})),
        ),
        "cluster.engine.gpu": st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=8).filter(
            lambda text: text != "none"
        ),
    },
)


@given(TREES)
def test_what_is_written_is_read_back_equal(tmp_path_factory, settings):
    tree = preset("dart")
    for key, value in settings.items():
        path = key.split(".")
        for part in reversed(path):
            value = {part: value}
        tree = merge(tree, value)
    config = from_tree(tree)
    file = tmp_path_factory.getbasetemp() / "there-and-back.toml"
    file.write_text(to_toml(config), "utf-8")
    assert load(file) == config
    assert to_toml(load(file)) == to_toml(config)


@pytest.mark.parametrize("name", sorted(presets()))
def test_every_preset_is_written_and_read_back_equal(tmp_path, name):
    config = load(name)
    file = tmp_path / "resolved.toml"
    file.write_text(to_toml(config))
    assert load(file) == config
    assert isinstance(config, Config)


# -- components that are chosen by name -----------------------------------------------------------


def test_parameters_go_with_the_component_that_a_table_chooses():
    routing = load(overrides=["rollout.routing.rule=session_affine", "rollout.routing.max_excess=2"]).rollout.routing
    assert routing == SessionAffine.Parameters(max_excess=2)
    assert isinstance(routing.build(), SessionAffine)


def test_another_component_s_parameter_is_refused_with_its_name():
    message = refused("rollout.routing.max_excess=2")
    assert message == (
        "rollout.routing.max_excess is a parameter of session_affine, and rollout.routing.rule chooses another"
    )
    assert "unknown key 'rollout.routing.max_exces'; did you mean 'rollout.routing.max_excess'?" in refused(
        "rollout.routing.max_exces=2"
    )


def test_parameters_of_the_preset_s_component_go_with_it():
    """The preset says session_affine with max_excess = 1; whoever chooses another router need not know."""
    assert load("dartsim").rollout.routing == SessionAffine.Parameters(max_excess=1)
    config = load("dartsim", overrides=["rollout.routing.rule=round_robin"])
    assert config.rollout.routing == RoundRobin.Parameters()


def test_a_file_may_set_a_parameter_of_the_preset_s_component(tmp_path):
    file = tmp_path / "my.toml"
    file.write_text('preset = "dartsim"\n[rollout.routing]\nmax_excess = 7\n')
    assert load(file).rollout.routing == SessionAffine.Parameters(max_excess=7)


def test_every_component_s_parameters_are_described():
    settings = {setting.key: setting for setting in describe()}
    assert settings["rollout.routing.rule"].default == '"least_in_flight"'
    assert "round_robin: " in settings["rollout.routing.rule"].meaning
    assert settings["rollout.routing.max_excess"].meaning.startswith("session_affine: ")
    check_setting("rollout.routing.max_excess", 3)
    with pytest.raises(ConfigError, match="greater than or equal to 0"):
        check_setting("rollout.routing.max_excess", -1)
    with pytest.raises(ConfigError, match="did you mean 'rollout"):
        check_setting("rollout.routing.max_exces", 1)
