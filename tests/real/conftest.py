"""A tiny model, random screens, and a desktop with one red button. Tests that need torch skip by name without it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dartsim.core.types import Attempt, Batch, Ending, Group, Observation, Reply, Task, Trajectory, Turn
from dartsim.envs.base import GuiEnv


class RedButton(GuiEnv):
    """A screen of 2 × 2 cells, one of them red; the first click decides."""

    def _begin(self, task: Task):
        self._cell = int(task.id) % 4
        self._clicked = -1
        self._shot = np.full((self.height, self.width, 3), 220, np.uint8)
        high, wide = self.height // 2, self.width // 2
        row, column = divmod(self._cell, 2)
        self._shot[row * high + 8 : (row + 1) * high - 8, column * wide + 8 : (column + 1) * wide - 8] = (220, 30, 30)

    def _act(self, action: str):
        _, column, row = action.split()
        self._clicked = 2 * int(row) + int(column)

    def act(self, action: str) -> bool:
        super().act(action)
        self._running = False
        return True

    def _observe(self) -> Observation:
        return Observation(self._shot, "press the red button")

    def _score(self) -> float:
        return float(self._clicked == self._cell)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Tests marked ``anyio`` run on asyncio's loop in real time; other ``async def`` tests run in virtual time."""
    return "asyncio"


@pytest.fixture(scope="session")
def qwen(module_of):
    """The module ``qwen.py``: a vocabulary with Qwen2.5-VL's special tokens at their real ids."""
    return module_of(Path(__file__).with_name("qwen.py"))


@pytest.fixture
def red_buttons() -> list[GuiEnv]:
    return [RedButton(width=56, height=56) for _ in range(16)]


@pytest.fixture
def make_vlm():
    """Make a model: ``make_vlm(seed=…, family=…, grammar=…, max_new_tokens=…, and fields of VlmConfig)``."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    torch.set_num_threads(1)
    from dartsim.real.vlm import Decoding, PromptStyle, build, grid_clicks, tiny

    def make(seed: int = 0, family="qwen2_5_vl", grammar="actions", max_new_tokens: int = 1, **fields):
        prompts = fields.pop("prompts", PromptStyle(max_images=2, max_texts=2))
        decoding = Decoding(grammar=grammar, max_new_tokens=max_new_tokens, temperature=fields.pop("temperature", 1.0))
        config = replace(
            tiny(family=family), actions=grid_clicks(2, 2), prompts=prompts, decoding=decoding, output_scale=1.0
        )
        return build(replace(config, **fields), seed=seed)

    return make


def screens(count: int, size: tuple[int, int] = (56, 56), seed: int = 0) -> list[Observation]:
    rng = np.random.default_rng(seed)
    shots = [rng.integers(0, 256, (*size, 3), dtype=np.uint8) for _ in range(count)]
    return [Observation(shot, f"press the red button {number}") for number, shot in enumerate(shots)]


def said(observation: Observation, action: str) -> Turn:
    return Turn(observation, Reply(action, 0, 0, 0, 0, 0))


@pytest.fixture
def prompts_of():
    """Build four prompts: of turns 0, 1 and 2, and of another attempt at the first screen."""

    def make(vlm, size: tuple[int, int] = (56, 56)) -> list[Any]:
        first, second, third = screens(3, size)
        build = vlm.prompts.build
        return [
            build(first, []),
            build(second, [said(first, "click 0 0")]),
            build(third, [said(first, "click 0 1"), said(second, "click 1 1")]),
            build(first, []),
        ]

    return make


@pytest.fixture
def play_batch(red_buttons):
    """Play a batch: ``play_batch(policy, update)``, four groups of four attempts."""
    pytest.importorskip("torch")
    from dartsim.real.evaluate import play

    def make(policy, update: int = 1, version: int | None = None) -> Batch:
        version = update - 1 if version is None else version
        tasks = [Task(str(4 * update + number), "press") for number in range(4)]
        attempts = [
            Attempt(100 * update + 4 * g + i, task, 10 * update + g, i, 1_000 * update + 4 * g + i, 1, version)
            for g, task in enumerate(tasks)
            for i in range(4)
        ]
        played = play(policy, red_buttons, attempts, version=version)
        groups = [Group(10 * update + g, task, tuple(played[4 * g : 4 * g + 4]), 0.0) for g, task in enumerate(tasks)]
        return Batch(update, version, tuple(groups))

    return make


@pytest.fixture
def long_batch():
    """Make a batch: ``long_batch(vlm, texts)``, two groups of two attempts of five turns, each of which says a text.

    Rewards, log-probabilities and versions differ; one turn has no log-probabilities, some replies no end token.
    """

    def make(vlm, *texts: str) -> Batch:
        rng = np.random.default_rng(0)
        ends = [vlm.vocabulary.end] if vlm.config.decoding.max_new_tokens > 1 else []

        def turn(number: int, first, logprobs: bool) -> Turn:
            shot = rng.integers(0, 256, (56, 56 + 28 * (number % 2), 3), dtype=np.uint8)
            words = vlm.vocabulary.encode(texts[int(rng.integers(len(texts)))])
            tokens = np.array([*words, *(ends if number % 3 else [])], dtype=np.int64)
            worker = rng.normal(-3.0, 1.0, len(tokens)).astype(np.float32) if logprobs else None
            reply = Reply("click 1 0", number // 3, 0, 0, 0, len(tokens), tokens, worker)
            return Turn(Observation(shot if number else first, "press"), reply)

        groups = []
        for g in range(2):
            task, first = Task(str(g), "press"), rng.integers(0, 256, (56, 56, 3), dtype=np.uint8)
            played = [tuple(turn(number, first, (i, number) != (0, 3)) for number in range(5)) for i in range(2)]
            attempts = [Attempt(2 * g + i, task, g, i, 0, 5, 0) for i in range(2)]
            pairs = zip(attempts, played, strict=True)
            found = (Trajectory(a, turns, Ending.DONE, float(a.index), None, 0.0, 0.0) for a, turns in pairs)
            groups.append(Group(g, task, tuple(found), 0.0))
        return Batch(1, 0, tuple(groups))

    return make
