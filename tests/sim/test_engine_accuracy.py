"""The fluid engine against the per-iteration reference: desktops in a closed loop, common random numbers."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from dartsim.sim.engine import FluidEngine
from dartsim.sim.engine_reference import ReferenceEngine
from dartsim.sim.environment import SimEnvironment
from dartsim.sim.gpu import A100_80, H100, GpuProfile
from dartsim.sim.prompts import PromptModel, ReplyModel

RESET_SECONDS = 60.0
STEP_SECONDS = 4.0  # lognormal, cv 0.5
WARM_UP = 0.05


class Desktop:
    """Asks, waits for the reply, acts, asks again; after 20 to 50 turns it is set up anew.

    Everything random is drawn beforehand and per desktop, so that both engines meet the same numbers.
    """

    def __init__(self, env: SimEnvironment, engine: Any, log: list, prompts: PromptModel, seed: int) -> None:
        rng = np.random.default_rng((7, seed))
        self.env, self.engine, self.log, self.prompts = env, engine, log, prompts
        self.reply = ReplyModel().sampler(np.random.default_rng((8, seed)))
        sigma = np.log(1.25) ** 0.5
        self.steps = iter(rng.lognormal(np.log(STEP_SECONDS) - sigma**2 / 2, sigma, 20_000).tolist())
        self.lengths = iter(rng.integers(20, 51, 2_000).tolist())
        self.turn, self.length = 0, next(self.lengths)
        env.call_in(float(rng.uniform(0, RESET_SECONDS)), self.ask)

    def ask(self) -> None:
        tokens, cached, images = self.prompts.prompt(self.turn, warm=True)
        self.engine.submit(tokens, cached, images, self.reply(), self.answered, self.env.now)

    def answered(self, job: Any) -> None:
        self.log.append((self.env.now, self.env.now - job.payload))
        self.turn += 1
        pause = next(self.steps)
        if self.turn == self.length:
            self.turn, self.length = 0, next(self.lengths)
            pause += RESET_SECONDS
        self.env.call_in(pause, self.ask)


class Outcome(NamedTuple):
    throughput: float
    mean: float
    p95: float
    p99: float
    num_requests: int
    events: int
    engine: Any


def closed_loop(
    engine_class: Any, num_desktops: int, seconds: float, *, profile: GpuProfile = H100, window: Any = "slide"
) -> Outcome:
    env = SimEnvironment()
    engine = engine_class(env, profile)
    log: list[tuple[float, float]] = []
    prompts = PromptModel(window=window)
    desktops = [Desktop(env, engine, log, prompts, seed) for seed in range(num_desktops)]
    env.run(until=seconds)
    assert len(desktops) == num_desktops
    latencies = np.array([latency for when, latency in log if when > WARM_UP * seconds])
    throughput = len(latencies) / (seconds * (1 - WARM_UP))
    p95, p99 = np.quantile(latencies, [0.95, 0.99])
    return Outcome(throughput, latencies.mean(), p95, p99, len(log), next(env._eid), engine)


CASES = [(2, 8_000), (8, 4_000), (16, 4_000), (24, 3_000), (32, 3_000), (64, 4_000)]


@pytest.mark.sim
@pytest.mark.parametrize(("num_desktops", "seconds"), CASES)
def test_fluid_engine_agrees_with_the_reference(num_desktops, seconds):
    reference = closed_loop(ReferenceEngine, num_desktops, seconds)
    fluid = closed_loop(FluidEngine, num_desktops, seconds)
    assert fluid.throughput == pytest.approx(reference.throughput, rel=0.01)
    assert fluid.mean == pytest.approx(reference.mean, rel=0.02)
    assert fluid.p95 == pytest.approx(reference.p95, rel=0.03)


@pytest.mark.sim
def test_fluid_engine_agrees_on_the_other_gpu_and_window():
    reference = closed_loop(ReferenceEngine, 6, 4_000, profile=A100_80, window="block")
    fluid = closed_loop(FluidEngine, 6, 4_000, profile=A100_80, window="block")
    assert fluid.throughput == pytest.approx(reference.throughput, rel=0.01)
    assert fluid.p95 == pytest.approx(reference.p95, rel=0.03)


@pytest.mark.sim
def test_more_desktops_than_the_cache_holds_make_the_reference_preempt():
    """At 64 desktops memory, not compute, decides; else that case would test nothing new."""
    reference = closed_loop(ReferenceEngine, 64, 1_000)
    assert reference.engine.num_preemptions > 0
