"""The measurements of ``experiments.learner_speed``: several turns in one sequence, sampling, and their peers."""

from __future__ import annotations

import importlib
import multiprocessing
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import psutil
import torch

from dartsim.config.sections.trainer import ObjectiveConfig, TrainerConfig
from dartsim.core.types import Attempt, Batch, Ending, Group, Observation, Reply, Task, Trajectory, Turn, Turns
from dartsim.lab.model_shapes import read_shape
from dartsim.real.learners.gradient_steps import TINY
from dartsim.real.learners.torch_learner import TorchLearner
from dartsim.real.learners.turn_data import read_turns
from dartsim.real.vlm import Decoding, PromptStyle, Vlm, VlmConfig, build, tiny
from dartsim.real.vlm.packing import distribution, pack, rows_of, split
from dartsim.real.vlm.sampling import sample
from dartsim.trainer.objective import TurnBatch, objective
from experiments.isolated import peak_rss_mb
from experiments.operations import forward_operations
from experiments.study import Figures, Options

T = TypeVar("T")

OBJECTIVE = ObjectiveConfig(kl_coefficient=0.0, entropy_coefficient=0.02, importance="off")
SAMPLED_SIDE, NEW_TOKENS, BATCHES = 112, 32, (1, 8, 32)
"""Pixels of a screen, tokens of a reply, and replies at once, where sampling is measured."""


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

    def parts(self, max_tokens: int) -> list[PeerTurns]:
        """Return micro-batches of at most so many padded tokens, by length."""
        lengths = [len(prompt.tokens) + len(reply) for prompt, reply in zip(self.prompts, self.replies, strict=True)]
        parts: list[list[int]] = []
        for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
            if parts and (len(parts[-1]) + 1) * lengths[parts[-1][0]] <= max_tokens:
                parts[-1].append(number)
            else:
                parts.append([number])
        return [
            PeerTurns([self.prompts[i] for i in part], [self.replies[i] for i in part], self.advantages[part])
            for part in parts
        ]


def peer_update(
    model: Any, parts_of: Callable[[], list[PeerTurns]], loss_of: Callable[[PeerTurns, int], Any]
) -> Callable[[], None]:
    """Return an update: the losses of the micro-batches, given their number, add up to that of the batch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), weight_decay=0.0)

    def update() -> None:
        optimizer.zero_grad()
        parts = parts_of()
        for part in parts:
            loss_of(part, len(parts)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return update


def plain_update(vlm: Vlm, batch: Batch, *, max_tokens: int, kept: Sequence[bool] | None = None) -> Callable[[], Any]:
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


def trl_update(vlm: Vlm, batch: Batch, *, max_tokens: int, kept: Sequence[bool] | None = None) -> Callable[[], Any]:
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


def sampling(options: Options) -> list[Figures]:
    """Measure sampling beside the library's, each reply exactly ``NEW_TOKENS`` long."""
    torch.set_num_threads(1)
    config = replace(tiny(), decoding=Decoding(max_new_tokens=NEW_TOKENS), prompts=PromptStyle(max_images=1))
    vlm = build(config)
    # An end token would shorten replies at random, so both sides generate to the limit.
    vlm.allowed[vlm.vocabulary.end] = False
    rows: list[Figures] = []
    rng = np.random.default_rng(0)
    for size in BATCHES:
        screens = rng.integers(0, 256, (size, SAMPLED_SIDE, SAMPLED_SIDE, 3), dtype=np.uint8)
        shots = [Observation(screen, "press it") for screen in screens]

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
        tokens, what = size * NEW_TOKENS, f"tokens sampled/s, batch {size}"
        rates = tokens / seconds["ours"], tokens / seconds["library"]
        rows.append(comparison(what, rates, "transformers model.generate"))
    return rows


PEER_NAMES = {"transformers": "plain transformers loop, same loss", "trl": "TRL GRPOTrainer, its loss"}


def comparison(what: str, values: tuple[float, float], peer_name: str, *, less: bool = False) -> Figures:
    """Return one row of our value and a peer's; a ratio above 1 means that ours is ahead, by more, or by ``less``."""
    ours, peer = values
    ratio = (peer / max(ours, 1.0)) if less else ours / peer
    shown = {"ours": round(ours, 1), "peer": round(peer, 1)}
    return {"what": what, **shown, "peer_name": peer_name, "ratio": round(ratio, 2)}


def over_peers(rows: Sequence[Figures]) -> list[Figures]:
    """Return packed turns beside each peer, in micro-batches of one prompt."""
    found = []
    for images, turns, _, max_tokens in LENGTHS:
        wanted = {"images": images, "turns": turns, "max_tokens": max_tokens, "selected": 1.0, "model": "tiny"}
        own = {row["variant"]: row for row in rows if row.items() >= wanted.items()}
        case = f"{images} images: {turns} turns"
        for peer, name in PEER_NAMES.items() if own else ():
            packed, other = own["packed"], own[peer]
            speeds = packed["turns_per_second"], other["turns_per_second"]
            memory = packed["peak_mib"], other["peak_mib"]
            found.append(comparison(f"turns trained/s, {case}", speeds, name))
            found.append(comparison(f"peak MiB an update adds, {case}", memory, name, less=True))
    return found


def measured(options: Options) -> Figures:
    """Measure updates of all cases, each in a fork of this process, then sampling."""
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
    ratios = operation_ratios(whole, rows)
    return {
        "multi_turn": rows,
        "operation_ratios": ratios,
        "rows": [*over_peers(rows), *sampling(options)],
        "config": {**config, "threads": 1, "new_tokens": NEW_TOKENS},
    }
