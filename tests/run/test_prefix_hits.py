"""The share of prompt tokens found in a prefix cache: by hand, and for any schedule."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dartsim.config.schema import RolloutConfig
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import Attempt, Observation, Request, Task, Weights
from dartsim.observe import Recorder
from dartsim.observe.figures import figures
from dartsim.rollout import RolloutService
from dartsim.rollout.routers.least_in_flight import LeastInFlight
from dartsim.sim import run_virtual
from dartsim.sim.engine import FluidEngine
from dartsim.sim.gpu import H100
from dartsim.sim.prompts import BLOCK_TOKENS, PromptModel
from dartsim.sim.worker import SimWorker

SIZES = {"system_tokens": 32, "image_tokens": 64, "reply_tokens": 27, "turn_tokens": 5, "max_images": 2}
"""System 2 blocks, a screenshot 4, a reply with its template 2; all but 6 tokens of the last reply are found again."""


class Silent:
    def act(self, request):
        return "WAIT"


def made(prompts, num_workers=1):
    """A service over simulated engines without a reload time, and its recorder."""
    loop = asyncio.get_running_loop()
    recorder = Recorder(loop.time, num_envs=1, num_engines=num_workers)
    engines = [
        SimWorker(
            index,
            FluidEngine(loop.env, H100),
            prompts=prompts,
            policy=Silent(),
            reply_tokens=lambda: 2,
            reload_seconds=lambda: 1.0,
            prefix_cache=True,
        )
        for index in range(num_workers)
    ]
    service = RolloutService(
        engines, weights=Weights(0), router=LeastInFlight(), config=RolloutConfig(), recorder=recorder
    )
    return service, recorder, engines


def request(turn, session=0):
    attempt = Attempt(session, Task("t", ""), 0, session, seed=0, turn_limit=99, version=0)
    return Request(attempt, turn, Observation(None, ""), [])


@pytest.mark.parametrize(
    ("after_cut", "found", "of"),
    [
        # Turns 0 and 1 are alike: a cold 96 tokens, then 128 of 192 less the 6 at their end, in whole blocks: 112.
        # Turns 2 and 3 change their first screenshot, so that only the text before it is found again: 32, then 64.
        (None, [0, 112, 32, 64], [96, 192, 224, 256]),
        # Turn 2 is cut to one screenshot; turn 3 goes on from there, all 192 before it less 6, in whole blocks.
        (1, [0, 112, 32, 176], [96, 192, 160, 256]),
    ],
)
async def test_dropping_in_blocks_keeps_the_prefix_that_a_sliding_window_breaks(after_cut, found, of):
    service, recorder, _ = made(PromptModel(images_after_cut=after_cut, **SIZES))
    session = service.session(request(0).attempt, recorder.desktops.tracks[0])
    first = recorder.snapshots[0]
    replies = [await session.generate(request(turn)) for turn in (0, 1)]
    full = recorder.snapshot()
    replies += [await session.generate(request(turn)) for turn in (2, 3)]
    last = recorder.snapshot()
    assert [reply.cached_tokens for reply in replies] == found
    assert [reply.prompt_tokens for reply in replies] == of
    assert figures(first, last)["prefix_hit_share"] == sum(found) / sum(of)
    assert figures(full, last)["prefix_hit_share"] == sum(found[2:]) / sum(of[2:])


PROMPTS = st.builds(
    PromptModel,
    system_tokens=st.integers(1, 400),
    image_tokens=st.integers(0, 300),
    reply_tokens=st.integers(1, 60),
    turn_tokens=st.integers(0, 8),
    max_images=st.integers(2, 5),
    max_texts=st.integers(0, 6),
    images_after_cut=st.none() | st.integers(1, 2),
    num_turns=st.just(12),
)
STEPS = st.lists(
    st.one_of(st.tuples(st.integers(0, 2), st.integers(0, 14)), st.sampled_from(list(SyncMode))),
    min_size=1,
    max_size=25,
)
"""A session and its turn, or a change of weights."""


@settings(deadline=None)
@given(prompts=PROMPTS, steps=STEPS)
def test_hits_are_whole_blocks_of_prompts_that_were_looked_up(prompts, steps):
    async def main():
        service, recorder, engines = made(prompts, num_workers=2)
        version = 0
        for step in steps:
            if isinstance(step, SyncMode):
                version += 1
                await engines[0].load(Weights(version), step)
                continue
            session, turn = step
            reply = await service.session(request(0).attempt, recorder.desktops.tracks[0]).generate(
                request(turn, session)
            )
            assert 0 <= reply.cached_tokens < reply.prompt_tokens
            assert reply.cached_tokens % BLOCK_TOKENS == 0
            assert reply.cached_tokens in (0, prompts.prompt(turn, warm=True).cached_tokens)
        hot = recorder.hot
        assert 0 <= hot.cached_tokens <= hot.looked_up_tokens == hot.prompt_tokens
        share = figures(recorder.snapshots[0], recorder.snapshot())["prefix_hit_share"]
        assert share is None if not hot.looked_up_tokens else 0.0 <= share < 1.0

    run_virtual(main())
