"""The table of faults: complete, sourced, and what a configuration makes of it."""

import pytest

from dartsim.config.schema import FaultsConfig
from dartsim.core import errors as core
from dartsim.core.errors import ConfigError
from dartsim.sim.faults import KINDS, PROFILES, Effect, Scope, active_faults
from dartsim.sim.faults.kinds import FUZZ_PLACES


def config(**fields):
    return FaultsConfig.model_validate(fields)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_every_kind_says_what_happens_how_often_and_where_it_is_known_from(kind):
    assert kind.description
    assert kind.source
    assert tuple(kind.rates) == PROFILES
    assert list(kind.rates.values()) == sorted(kind.rates.values()), "a calmer profile has a higher rate"
    assert kind.scope is not Scope.CALL or kind.rates["hostile"] <= 0.1
    seen = kind.effect in (Effect.FAILS, Effect.LOST, Effect.TORN)
    assert kind.cause or not seen or kind.source.startswith("measured") or kind.place in FUZZ_PLACES


def test_causes_of_faults_that_fail_are_words_of_the_real_ones():
    pytest.importorskip("docker", reason="needs the extra `real`")
    from dartsim.real.containers import errors as containers
    from dartsim.real.engines import errors as inference
    from dartsim.real.osworld import errors as osworld

    real = {
        getattr(error, "cause", None)
        for module in (core, containers, inference, osworld)
        for error in vars(module).values()
    }
    spoken = {  # by an instance, in dartsim.real.osworld.errors; or nothing real can be told of it
        "setup_download_failed",
        "setup_tabs_failed",
        "getter_failed",
        "metric_failed",
        "metric_unavailable",
        "load_timeout",
        "trainer_outage",
        "trainer_crash_before_commit",
        "trainer_crash_during_commit",
        "trainer_crash_after_commit",
    }
    assert {kind.cause for kind in KINDS.values() if kind.cause} <= real | spoken


def test_none_has_nothing_and_a_scaled_profile_has_its_rates_scaled():
    assert active_faults(config()) == {}
    assert active_faults(config(profile="hostile", scale=0.0)) == {}
    assert active_faults(config(profile="calm", scale=3.0))["port_clash"].rate == pytest.approx(0.0006)
    assert active_faults(config(profile="hostile", scale=1e9))["port_clash"].rate == 1.0
    assert set(KINDS) - set(active_faults(config(profile="hostile"))) == {
        kind.name for kind in KINDS.values() if not any(kind.rates.values())
    }


def test_single_kinds_are_changed_and_single_strikes_added():
    active = active_faults(
        config(
            kinds={"worker_crash": {"per_hour": 2.0, "lasts_seconds": 7.0}, "port_clash": {"share": 0.0}},
            schedule=[
                {"kind": "host_lost", "at_seconds": 50.0},
                {"kind": "host_lost", "at_seconds": 10.0, "lasts_seconds": 5.0, "target": 1},
            ],
        )
    )
    assert list(active) == ["worker_crash", "host_lost"]
    assert (active["worker_crash"].rate, active["worker_crash"].lasts.mean) == (2.0, 7.0)
    assert [(s.at_seconds, s.lasts_seconds, s.target) for s in active["host_lost"].windows] == [
        (10.0, 5.0, 1),
        (50.0, None, 0),
    ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kinds": {"worker_crsh": {}}}, "no kind of fault 'worker_crsh'; did you mean 'worker_crash'?"),
        ({"schedule": [{"kind": "x", "at_seconds": 1.0}]}, "no kind of fault 'x'; see `dartsim config --list faults`"),
        ({"kinds": {"killed": {"share": 0.5}}}, "only `dartsim fuzz` injects 'killed'"),
        (
            {"kinds": {"worker_crash": {"share": 0.5}}},
            "worker_crash.share: the rate of this kind counts worker-hours; give per_hour instead",
        ),
        ({"kinds": {"port_clash": {"per_hour": 0.5}}}, "the rate of this kind counts calls; give share instead"),
        (
            {"kinds": {"host_lost": {"per_hour": 1.0, "lasts_seconds": {"kind": "x"}}}},
            "host_lost.lasts_seconds: ",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(fields, message):
    with pytest.raises(ConfigError) as refused:
        active_faults(config(**fields))
    assert message in str(refused.value)
