"""Components by kind and name: one class is all that a new one needs."""

import subprocess
import sys
from contextlib import asynccontextmanager

import pytest

import dartsim
from dartsim.config import load
from dartsim.core.errors import ConfigError
from dartsim.core.registry import KINDS, register
from dartsim.envs.direct import DirectProvider
from dartsim.envs.simulated import SimDesktop
from dartsim.run.backends import DesktopBackend
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared

BUILT_IN = {
    "router": "least_in_flight",
    "lending": "by_share",
    "task_order": "shuffled",
    "attempts": "fixed",
    "turn_limit": "fixed",
    "admission": "bounds",
    "batch": "ready",
    "selection": "all",
    "advantage": "group",
    "desktops": "mock",
    "engine": "sim",
    "learner": "sim",
    "policy": "drawn",
    "fault": "worker_crash",
}
"""A built-in component of each kind."""


def plain_classes():
    """Return a class without methods of its own for each kind, of the base that a plug-in of the kind inherits from."""
    bases = {
        "router": dartsim.Router,
        "lending": dartsim.LendingRule,
        "task_order": dartsim.TaskOrder,
        "attempts": dartsim.AttemptsRule,
        "turn_limit": dartsim.TurnLimitRule,
        "admission": object,
        "batch": dartsim.BatchRule,
        "selection": dartsim.TurnSelection,
        "advantage": dartsim.AdvantageRule,
        "policy": dartsim.Policy,
    }
    return [(kind, type("Bare", (base,), {"__module__": "plug_in"})) for kind, base in bases.items()]


@pytest.mark.parametrize(("kind", "component"), plain_classes(), ids=lambda value: str(value))
def test_a_component_without_the_method_of_its_kind_is_refused_when_it_is_registered(kind, component):
    with pytest.raises(TypeError, match=rf"plug_in\.Bare does not define the method \w+, which every {kind} has"):
        register(kind, "bare")(component)


def test_no_plug_in_takes_the_name_of_a_built_in_component_of_any_kind():
    """In a process of its own, in which nothing has looked up a name yet."""
    assert BUILT_IN.keys() == KINDS.keys()
    program = f"""
from dartsim.core.registry import register
class Other:
    pass
for kind, name in {BUILT_IN}.items():
    try:
        register(kind, name)(Other)
    except ValueError as error:
        assert repr(name) in str(error), error
    else:
        raise AssertionError(kind)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_kind_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="'rooter'"):
        register("rooter", "any")


def test_a_name_that_no_component_has_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"backend\.desktops"):
        load("dart", overrides=["backend.desktops=moc"])


@register("desktops", "still")
class StillDesktops(DesktopBackend):
    """Desktops of another project, in real time."""

    task_sources = ("generated",)

    def problems(self, config):
        if config.rollout.num_envs > 100:
            yield "there are 100 still desktops"

    @asynccontextmanager
    async def open_here(self, config, tasks, on_call=None, *, folder=None):
        yield DirectProvider(lambda: SimDesktop(draw=False))


def test_a_desktop_backend_of_another_project_serves_a_run():
    fast = ["cluster.engine.overhead_seconds=0.0", "rollout.num_envs=2", "rollout.num_workers=1"]
    engine = ['cluster.engine.model="batch"', "cluster.engine.batch_seconds=0.001"]
    config = load("dart", overrides=[*fast, *engine, "run.hours=0.0002", "backend.desktops=still"])
    assert not config.backend.virtual
    assert run_prepared(prepare(config)).recorder.counts["trajectories"] > 0
    with pytest.raises(ConfigError, match="there are 100 still desktops"):
        load("dart", overrides=["backend.desktops=still", "rollout.num_envs=101"])


def test_names_of_backends_load_nothing_that_is_heavy():
    program = (
        "import sys; from dartsim.config import load; load('tiny', overrides=['backend.desktops=desktop',"
        "'backend.workers=vllm', 'backend.learner=fsdp', 'tasks.source=desktop']);"
        "print(sorted({'docker', 'ray', 'torch', 'transformers', 'simpy'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
