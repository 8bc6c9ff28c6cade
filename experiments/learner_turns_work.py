"""The measurements of ``experiments.learner_speed``: several turns in one sequence, and what that saves."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from dartsim.config.sections.trainer import TrainerConfig
from dartsim.core.types import Attempt, Batch, Ending, Group, Observation, Reply, Task, Trajectory, Turn, Turns
from dartsim.lab.model_shapes import read_shape
from dartsim.real.learners.gradient_steps import TINY
from dartsim.real.learners.torch_learner import TorchLearner
from dartsim.real.learners.turn_data import read_turns
from dartsim.real.vlm import Vlm, VlmConfig, build, tiny
from dartsim.real.vlm.packing import pack, rows_of, split
from experiments.learner_speed_work import (
    OBJECTIVE,
    added_mebibytes,
    forked,
    plain_update,
    seconds_each,
    trl_update,
)
from experiments.operations import forward_operations
from experiments.study import Figures, Options

SIDE, CELLS = 224, 16
"""Pixels of a screen, which are 64 tokens, and the cells that are clicked on."""
AFTER_CUT = 2
WIDER: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_layers": 4,
    "num_heads": 4,
    "num_kv_heads": 2,
    "vision_hidden_size": 128,
    "vision_intermediate_size": 384,
}
"""Sizes of a model that spends less of its time on what does not grow with the number of tokens."""


@dataclass(frozen=True)
class TurnsCase:
    """Attempts at one task.

    Attributes:
        images: Most screenshots in a prompt, cut to ``AFTER_CUT``.
        turns: Of an attempt.
        attempts: At the task.
        max_tokens: Of a micro-batch.
        selected: Share of the turns that are trained.
        model: ``tiny`` or ``wider``.
    """

    images: int
    turns: int
    attempts: int
    max_tokens: int
    selected: float = 1.0
    model: str = "tiny"

    def config(self, *, sliding: bool = False) -> VlmConfig:
        config = tiny(columns=CELLS, rows=CELLS, max_images=self.images, max_texts=self.turns)
        if self.model == "wider":
            config = replace(config, **WIDER)
        return replace(config, prompts=replace(config.prompts, images_after_cut=None if sliding else AFTER_CUT))

    def batch(self, vlm: Vlm) -> Batch:
        """Return random clicks on random screens; all attempts begin on the same one."""
        rng = np.random.default_rng(0)
        task = Task("0", "press the red button")

        def screen() -> Any:
            return rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)

        def turn(shot: Any) -> Turn:
            action = "click {} {}".format(*rng.integers(0, CELLS, 2))
            tokens = np.array(vlm.grammar.tokens(action))
            known = np.zeros(len(tokens), np.float32)  # log-probabilities and entropies; their values do not matter
            reply = Reply(action, 0, 0, 0, 0, len(tokens), tokens, known, known)
            return Turn(Observation(shot, task.instruction), reply)

        first, trajectories = screen(), []
        for index in range(self.attempts):
            attempt = Attempt(index, task, 0, index, index, self.turns, 0)
            turns = tuple(turn(screen() if number else first) for number in range(self.turns))
            trajectories.append(Trajectory(attempt, Turns(turns), Ending.DONE, float(index % 2), None, 0.0, 0.0))
        return Batch(1, 0, (Group(0, task, tuple(trajectories), 0.0),))

    @property
    def kept(self) -> list[bool]:
        """Which turns are trained."""
        count = self.attempts * self.turns
        chosen = np.random.default_rng(1).permutation(count) < round(self.selected * count)
        return [bool(flag) for flag in chosen]


LENGTHS = ((5, 14, 4, 512), (10, 30, 2, 1_024))
"""Images, turns, attempts and the tokens of a micro-batch: it holds one prompt, as at 1080p, where 8,192 tokens hold
less than one of five images."""

CASES = (
    *(TurnsCase(*length, selected) for length in LENGTHS for selected in (1.0, 0.8)),
    *(TurnsCase(images, turns, attempts, 4_096) for images, turns, attempts, _ in LENGTHS),
    *(TurnsCase(images, turns, attempts // 2, limit, 1.0, "wider") for images, turns, attempts, limit in LENGTHS),
)
OURS = {"packed": "trajectories", "per turn": "turns", "sliding": "turns"}
"""Variants of ours, by ``trainer.optimizer.pack``; the images of the last slide, as DART's."""
PEERS = {"transformers": plain_update, "trl": trl_update}


def trainer_config(case: TurnsCase, variant: str) -> TrainerConfig:
    """Return how a variant of ours trains."""
    optimizer = {"learning_rate": 1e-4, "pack": OURS[variant], "max_tokens": case.max_tokens}
    return TINY.replace(objective=OBJECTIVE, optimizer=optimizer)


def update_of(case: TurnsCase, variant: str) -> Callable[[], Any]:
    """Return a variant's update."""
    vlm = build(case.config(sliding=variant == "sliding"))
    batch = case.batch(vlm)
    if variant in PEERS:
        return PEERS[variant](vlm, batch, kept=case.kept, max_tokens=case.max_tokens)
    learner = TorchLearner(vlm, trainer_config(case, variant), select=lambda _: case.kept)
    return partial(learner.train, batch)


def operations(case: TurnsCase, variant: str) -> float:
    """Return the operations of a forward pass of a variant of ours over the batch, in its micro-batches."""
    vlm = build(case.config(sliding=variant == "sliding"))
    config = trainer_config(case, variant)
    examples = read_turns(case.batch(vlm), vlm, config.objective.advantage).examples
    limit = config.optimizer.max_tokens
    lengths, pictures, patches = [], 0, 0
    for rows in split(rows_of(examples, pack=config.optimizer.pack), max_tokens=limit):
        lengths += [row.length for row in rows]
        for _, seen in pack(vlm, rows, examples).inputs.pictures:
            pictures, patches = pictures + len(seen), seen.shape[1]
    with TemporaryDirectory() as folder:
        vlm.save(Path(folder))
        shape = read_shape(Path(folder))
    reply_tokens = sum(len(example.tokens) for example in examples)
    return forward_operations(shape, lengths, pictures=pictures, patches=patches, reply_tokens=reply_tokens).total


def memory_and_tokens(case: TurnsCase, variant: str) -> Figures:
    """Return what an update adds to the peak memory of a process of its own, MiB, and the tokens that ours computes."""
    torch.set_num_threads(1)
    update = update_of(case, variant)
    results: list[Any] = []
    memory = added_mebibytes(lambda: results.append(update()))
    tokens = {"computed_tokens": round(results[0].metrics["learner/computed_tokens"])} if variant in OURS else {}
    return {"peak_mib": memory, **tokens}


def _named(case: TurnsCase) -> Figures:
    return {**asdict(case), "turns_trained": sum(case.kept)}


def operation_ratios(cases: Sequence[TurnsCase], rows: Sequence[Figures]) -> list[Figures]:
    """Compare how much less is computed by packing with how much less CPU time it takes."""
    ratios = []
    for case in cases:
        own = {row["variant"]: row for row in rows if row.items() >= _named(case).items()}
        computed = {variant: operations(case, variant) for variant in OURS}
        for against in ("per turn", "sliding"):
            predicted = computed[against] / computed["packed"]
            measured = own["packed"]["turns_per_second"] / own[against]["turns_per_second"]
            ratios.append(
                {
                    **_named(case),
                    "against": against,
                    "tokens": own[against]["computed_tokens"] / own["packed"]["computed_tokens"],
                    "operations": predicted,
                    "cpu_seconds": measured,
                    "error": predicted / measured - 1.0,
                }
            )
    return ratios


def update_seconds(case: TurnsCase, variants: Sequence[str], repeats: int) -> dict[str, float]:
    """Return the least process time of an update of each variant."""
    torch.set_num_threads(1)
    return seconds_each({variant: update_of(case, variant) for variant in variants}, repeats=repeats)


def multi_turn(options: Options) -> Figures:
    """Measure the cases."""
    warnings.filterwarnings("ignore")
    cases = CASES[:2] if options.quick else CASES
    rows = []
    for case in cases:
        options.console.print(f"updates of {case} …")
        variants = (*OURS, *PEERS) if case.model == "tiny" and case.selected == 1.0 else tuple(OURS)
        repeats = 1 if options.quick or case.model == "wider" else 2 * options.seeds
        seconds = forked(update_seconds, case, variants, repeats)
        rows += [
            {
                **_named(case),
                "ranks": 1,
                "variant": variant,
                "turns_per_second": sum(case.kept) / seconds[variant],
                **forked(memory_and_tokens, case, variant),
            }
            for variant in variants
        ]
    whole = [case for case in cases if case.selected == 1.0]
    parameters = {model: build(CASES[place].config()).num_parameters for model, place in (("tiny", 0), ("wider", -1))}
    config = {"model": "Qwen2.5-VL class", "parameters": parameters, "screen": [SIDE, SIDE], "after_cut": AFTER_CUT}
    return {"config": config, "multi_turn": rows, "operation_ratios": operation_ratios(whole, rows)}
