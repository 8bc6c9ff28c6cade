"""The measurements of ``experiments.learner_speed``: learners and workers and their peers, a turn in a sequence."""

from __future__ import annotations

import importlib
import multiprocessing
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import psutil
import torch

from dartsim.config.sections.trainer import ObjectiveConfig
from dartsim.core.types import Attempt, Batch, Ending, Group, Observation, Reply, Task, Trajectory, Turn, Turns
from dartsim.real.learners.gradient_steps import TINY
from dartsim.real.learners.torch_learner import TorchLearner
from dartsim.real.vlm import Decoding, PromptStyle, Vlm, VlmConfig, build, tiny
from dartsim.real.vlm.packing import distribution
from dartsim.real.vlm.sampling import sample
from dartsim.trainer.objective import TurnBatch, objective
from experiments.isolated import peak_rss_mb
from experiments.study import Figures, Options

T = TypeVar("T")

SIDE = 112
"""Pixels of a screen."""
NEW_TOKENS = 32
BATCHES = (1, 8, 32)
OBJECTIVE = ObjectiveConfig(kl_coefficient=0.0, entropy_coefficient=0.02, importance="off")


@dataclass(frozen=True)
class LearnerCase:
    """A batch to train on."""

    name: str
    groups: int
    attempts: int
    turns: int
    grammar: str


CASES = (
    LearnerCase("clicks: 16 groups of 8 attempts of 1 turn, 1 token each", 16, 8, 1, "actions"),
    LearnerCase("texts: 4 groups of 8 attempts of 4 turns, 16 tokens each", 4, 8, 4, "free"),
)


def config_of(case: LearnerCase) -> VlmConfig:
    """Return the model of a case."""
    prompts = PromptStyle(max_images=1, max_texts=4)
    longest = 1 if case.grammar == "actions" else 16
    decoding = Decoding(grammar="actions" if case.grammar == "actions" else "free", max_new_tokens=longest)
    return replace(tiny(), prompts=prompts, decoding=decoding)


def batch_of(vlm: Vlm, case: LearnerCase) -> Batch:
    """Return a batch that the model itself sampled; attempts of a group see the same first screen only."""
    rng = np.random.default_rng(0)
    groups = []
    for g in range(case.groups):
        task = Task(str(g), "press the red button")
        first = rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
        trajectories = []
        for i in range(case.attempts):
            attempt = Attempt(g * case.attempts + i, task, g, i, g * 100 + i, case.turns, 0)
            turns: list[Turn] = []
            for number in range(case.turns):
                shot = first if number == 0 else rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
                shown = Observation(shot, task.instruction)
                (reply,) = sample(vlm, [vlm.prompts.build(shown, turns)], [(attempt.seed, number)])
                text = vlm.vocabulary.decode(reply.tokens.tolist())
                turns.append(Turn(shown, Reply(text, 0, 0, 0, 0, len(reply.tokens), *reply)))
            trajectories.append(Trajectory(attempt, Turns(turns), Ending.DONE, float(i % 2), None, 0.0, 0.0))
        groups.append(Group(g, task, tuple(trajectories), 0.0))
    return Batch(1, 0, tuple(groups))


def library_inputs(vlm: Vlm, prompts: Sequence[Any], replies: Sequence[Any]) -> dict[str, torch.Tensor]:
    """Return prompts, padded on the left, and replies, padded on the right, as transformers' classes take them."""
    width = max(len(prompt.tokens) for prompt in prompts)
    longest = max((len(reply) for reply in replies), default=0)
    ids = np.full((len(prompts), width + longest), vlm.vocabulary.pad)
    attended = np.zeros_like(ids)
    for row, (prompt, reply) in enumerate(zip(prompts, replies, strict=True)):
        start, end = width - len(prompt.tokens), width + len(reply)
        ids[row, start:width], ids[row, width:end] = prompt.tokens, reply
        attended[row, start:end] = 1
    patches = np.concatenate([picture.patches for prompt in prompts for picture in prompt.pictures])
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (vlm.rules.mean, vlm.rules.std))
    pixels = (torch.from_numpy(patches).float().view(len(patches), 3, 1, -1) / 255.0 - mean) / std
    tokens = torch.from_numpy(ids)
    inputs = {
        "input_ids": tokens,
        "attention_mask": torch.from_numpy(attended),
        "mm_token_type_ids": (tokens == vlm.vocabulary.image).int(),
        "pixel_values": pixels.expand(-1, -1, 2, -1).reshape(len(patches), -1),
        "image_grid_thw": torch.tensor([[1, *picture.grid] for prompt in prompts for picture in prompt.pictures]),
    }
    return {name: tensor.to(device_of(vlm)) for name, tensor in inputs.items()}


def device_of(vlm: Vlm) -> torch.device:
    """Return where the model's weights are."""
    return torch.device(next(vlm.model.parameters()).device)


@dataclass(frozen=True)
class PeerTurns:
    """The turns that a peer trains: prompts, the replies' tokens and advantages."""

    prompts: list[Any]
    replies: list[Any]
    advantages: torch.Tensor

    @classmethod
    def of(cls, vlm: Vlm, batch: Batch, kept: Sequence[bool] | None) -> PeerTurns:
        """Return the kept turns of a batch; None keeps all."""
        flags = iter(kept if kept is not None else [True] * batch.num_turns)
        prompts, replies, advantages = [], [], []
        for trajectory in batch.trajectories:
            turns = tuple(trajectory.turns)
            for number, turn in enumerate(turns):
                if next(flags):
                    prompts.append(vlm.prompts.build(turn.observation, turns[:number]))
                    replies.append(turn.reply.tokens)
                    advantages.append(2.0 * (trajectory.reward or 0.0) - 1.0)
        return cls(prompts, replies, torch.tensor(advantages))

    def parts(self, max_tokens: int | None) -> list[PeerTurns]:
        """Return micro-batches of at most so many padded tokens, by length; None: all at once."""
        lengths = [len(prompt.tokens) + len(reply) for prompt, reply in zip(self.prompts, self.replies, strict=True)]
        parts: list[list[int]] = []
        for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
            if parts and (max_tokens is None or (len(parts[-1]) + 1) * lengths[parts[-1][0]] <= max_tokens):
                parts[-1].append(number)
            else:
                parts.append([number])
        return [
            PeerTurns([self.prompts[i] for i in part], [self.replies[i] for i in part], self.advantages[part])
            for part in parts
        ]


def optimizer_of(model: Any) -> torch.optim.Optimizer:
    """Return the optimizer that all trainers use."""
    return torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), weight_decay=0.0)


def peer_update(
    model: Any, parts_of: Callable[[], list[PeerTurns]], loss_of: Callable[[PeerTurns, int], Any]
) -> Callable[[], None]:
    """Return an update: the losses of the micro-batches, given their number, add up to that of the batch."""
    optimizer = optimizer_of(model)

    def update() -> None:
        optimizer.zero_grad()
        parts = parts_of()
        for part in parts:
            loss_of(part, len(parts)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return update


def plain_update(
    vlm: Vlm, batch: Batch, *, kept: Sequence[bool] | None = None, max_tokens: int | None = None
) -> Callable[[], Any]:
    """Return an update of a plain loop: the class's own forward pass, the same loss, the same mask."""
    count = batch.num_turns if kept is None else sum(kept)

    def loss_of(part: PeerTurns, _: int) -> Any:
        replies = part.replies
        inputs = library_inputs(vlm, part.prompts, replies)
        longest = max(len(reply) for reply in replies)
        logits = vlm.model(**inputs, logits_to_keep=longest + 1).logits[:, :-1]
        mask = torch.zeros(len(replies), longest, dtype=torch.bool)
        for row, reply in enumerate(replies):
            mask[row, : len(reply)] = True
        mask = mask.to(logits.device)
        logprobs, entropies = distribution(logits, vlm.allowed.to(logits.device), vlm.decoding.temperature)
        new = logprobs.gather(2, inputs["input_ids"][:, -longest:, None])[..., 0]
        # A token at padding may be one that the grammar refuses.
        new = torch.where(mask, new, 0.0)
        advantage = part.advantages.to(logits.device)
        turns = TurnBatch(new_BT=new, mask_BT=mask, advantage_B=advantage, entropy_BT=entropies)
        return objective(turns, OBJECTIVE).loss * (len(replies) / count)  # a mean over turns

    return peer_update(vlm.model, lambda: PeerTurns.of(vlm, batch, kept).parts(max_tokens), loss_of)


def trl_update(
    vlm: Vlm, batch: Batch, *, kept: Sequence[bool] | None = None, max_tokens: int | None = None
) -> Callable[[], Any]:
    """Return an update of TRL's GRPO trainer: its loss on inputs as it makes them, without its own sampling."""
    # Typed too loosely, or not at all, for a strict check.
    datasets: Any = importlib.import_module("datasets")
    trl: Any = importlib.import_module("trl")
    count = batch.num_turns
    settings = trl.GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=count,
        num_generations=2,
        use_cpu=device_of(vlm).type == "cpu",
        bf16=False,
        report_to=[],
        beta=0.0,
        gradient_checkpointing=False,
    )
    trainer = trl.GRPOTrainer(
        model=vlm.model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=settings,
        train_dataset=datasets.Dataset.from_list([{"prompt": "press"}] * count),
        processing_class=vlm.vocabulary.tokenizer,
    )
    model = trainer.model
    model.train()

    def loss_of(part: PeerTurns, parts: int) -> Any:
        trainer.current_gradient_accumulation_steps = parts
        inputs = library_inputs(vlm, part.prompts, part.replies)
        longest = max(len(reply) for reply in part.replies)
        split = {
            "prompt_ids": inputs["input_ids"][:, :-longest],
            "prompt_mask": inputs["attention_mask"][:, :-longest],
            "completion_ids": inputs["input_ids"][:, -longest:],
            "completion_mask": inputs["attention_mask"][:, -longest:],
            "advantages": part.advantages.to(device_of(vlm)),
            "num_items_in_batch": inputs["attention_mask"][:, -longest:].sum() * parts,
            "num_images": [len(prompt.pictures) for prompt in part.prompts],
        }
        shown = {name: inputs[name] for name in ("pixel_values", "image_grid_thw", "mm_token_type_ids")}
        return trainer._compute_loss(model, {**split, **shown})

    return peer_update(model, lambda: PeerTurns.of(vlm, batch, kept).parts(max_tokens), loss_of)


def our_update(vlm: Vlm, batch: Batch) -> Callable[[], Any]:
    """Return an update of ours."""
    learner = TorchLearner(vlm, TINY.replace(objective=OBJECTIVE, optimizer={"learning_rate": 1e-4}))
    return lambda: learner.train(batch)


UPDATES = {"ours": our_update, "transformers": plain_update, "trl": trl_update}
PEERS = {"transformers": "plain transformers loop, same loss", "trl": "TRL GRPOTrainer, its loss"}


def seconds_each(runs: dict[str, Callable[[], Any]], *, repeats: int) -> dict[str, float]:
    """Return the least process time of each, run alternately."""
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(repeats + 1):  # the first warms up, and is no worse than the others for being counted
        for name, run in runs.items():
            start = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - start)
    return best


def forked(function: Callable[..., T], *args: Any) -> T:
    """Call a function in a fork of this process, which imports nothing again; this process must not train."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        return pool.submit(function, *args).result()


def added_mebibytes(update: Callable[[], Any]) -> float:
    """Return what two updates add to the peak memory of this process."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget the peak so far; Linux
    before = psutil.Process().memory_info().rss
    update()
    update()
    return (1e6 * peak_rss_mb() - before) / 2**20


def peak_mebibytes(case: int, name: str) -> float:
    """Return what an update adds to the peak memory of a process of its own."""
    torch.set_num_threads(1)
    vlm = build(config_of(CASES[case]))
    return added_mebibytes(UPDATES[name](vlm, batch_of(vlm, CASES[case])))


def update_seconds(case: int, repeats: int) -> dict[str, float]:
    """Return the least process time of an update of each."""
    torch.set_num_threads(1)
    vlms = {name: build(config_of(CASES[case])) for name in UPDATES}
    return seconds_each(
        {name: make(vlms[name], batch_of(vlms[name], CASES[case])) for name, make in UPDATES.items()}, repeats=repeats
    )


def learners(options: Options) -> list[Figures]:
    """Measure updates of single turns; those of several turns at once are in ``learner_turns_work``."""
    rows: list[Figures] = []
    for number, case in enumerate(CASES):
        options.console.print(f"updates on {case.name} …")
        turns = case.groups * case.attempts * case.turns
        memory = {name: forked(peak_mebibytes, number, name) for name in UPDATES}
        seconds = forked(update_seconds, number, 2 if options.quick else 5 * options.seeds)
        for peer, peer_name in PEERS.items():
            rows.append(
                _row(f"turns trained/s, {case.name}", turns / seconds["ours"], turns / seconds[peer], peer_name)
            )
            rows.append(
                _row(f"peak MiB an update adds, {case.name}", memory["ours"], memory[peer], peer_name, less=True)
            )
    return rows


def workers(options: Options) -> list[Figures]:
    """Measure sampling, each reply exactly ``NEW_TOKENS`` long."""
    config = replace(tiny(), decoding=Decoding(max_new_tokens=NEW_TOKENS), prompts=PromptStyle(max_images=1))
    vlm = build(config)
    # An end token would shorten replies at random, so both sides generate to the limit.
    vlm.allowed[vlm.vocabulary.end] = False
    rows: list[Figures] = []
    rng = np.random.default_rng(0)
    for size in BATCHES:
        shots = [Observation(rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8), "press it") for _ in range(size)]

        def ours(shots: list[Observation] = shots) -> Any:
            prompts = [vlm.prompts.build(shown, []) for shown in shots]
            return sample(vlm, prompts, [(i, 0) for i in range(len(prompts))])

        def library(shots: list[Observation] = shots) -> Any:
            prompts = [vlm.prompts.build(shown, []) for shown in shots]
            with torch.inference_mode():
                answer = vlm.model.generate(
                    **library_inputs(vlm, prompts, [[]] * len(prompts)),
                    do_sample=True,
                    top_k=0,
                    max_new_tokens=NEW_TOKENS,
                    suppress_tokens=sorted(vlm.vocabulary.special),
                    pad_token_id=vlm.vocabulary.pad,
                    return_dict_in_generate=True,
                    output_logits=True,
                )
                # Log-probabilities and entropies of what was sampled, which ours returns as well.
                logits = torch.stack(answer.logits, 1)
                return distribution(logits, vlm.allowed, 1.0)

        options.console.print(f"sampling {size} replies at once …")
        seconds = seconds_each({"ours": ours, "library": library}, repeats=3 if options.quick else 5 * options.seeds)
        tokens = size * NEW_TOKENS
        what = f"tokens sampled/s, batch {size}"
        rows.append(_row(what, tokens / seconds["ours"], tokens / seconds["library"], "transformers model.generate"))
    return rows


def _row(what: str, ours: float, peer: float, peer_name: str, *, less: bool = False) -> Figures:
    """Return one comparison; a ratio above 1 means that ours is ahead."""
    ratio = (peer / max(ours, 1.0)) if less else ours / peer
    return {
        "what": what,
        "ours": round(ours, 1),
        "peer": round(peer, 1),
        "peer_name": peer_name,
        "ratio": round(ratio, 2),
    }


def measured(options: Options) -> Figures:
    """Measure learners and workers."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    rows = [*learners(options), *workers(options)]
    parameters = build(tiny()).num_parameters
    config = {"model": "Qwen2.5-VL class", "parameters": parameters, "screen": [SIDE, SIDE], "threads": 1}
    return {"config": {**config, "new_tokens": NEW_TOKENS}, "rows": rows}
