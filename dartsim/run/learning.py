"""``Learning``: a vision-language model that sees screenshots, writes actions and is trained on what came of them.

The only place that puts a real model (``real``) and the mock desktop (``envs.mock``) together; it is imported only
when a configuration asks for a model, because it needs torch and transformers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from weakref import finalize

import numpy as np

from dartsim.config import Config
from dartsim.curation import AllTurns, HighEntropyTurns, SuccessPool, TurnSelection
from dartsim.errors import ConfigError
from dartsim.ports import Learner
from dartsim.run.backend import action_grammar, desktop_maker
from dartsim.run.models import Models
from dartsim.run.rank_plan import fsdp_settings
from dartsim.run.ray import placed, ray_learner
from dartsim.trace.trace import HELD_OUT
from dartsim.trainer.advantages import AdvantageConfig
from dartsim.trainer.objective_config import ObjectiveConfig
from dartsim.trainer.once import Once
from dartsim.trainer.promoted import PromotedLearner
from dartsim.types import Attempt, Batch, Task, Trajectory, UpdateResult, Weights
from envs.actions import Grammar, make_grammar
from envs.render import episode_gif

try:
    from safetensors.torch import load_file, save_file

    from dartsim.run.checkpointing import CheckpointedLearner, Saved
    from dartsim.run.promoting import CHECKPOINT, RealLearner, promoting, promotion_figures, write_state
    from dartsim.run.successes import demonstrate, oracle_turns, pool_figures, read_successes, scored
    from real.evaluate import Evaluation, evaluate, play
    from real.fsdp.learner import FsdpLearner
    from real.learner import LearnerConfig, TorchLearner
    from real.local import LocalWorker
    from real.pool_files import PoolFile, token_meaning, write_pool
    from real.ray_cluster.learner import RayLearner
    from real.vlm import Vlm, VlmConfig, VlmPolicy, build
    from real.vlm.config import Decoding, PromptStyle, tiny, tiny_agent, tiny_writer
    from real.vlm.export import export
    from real.vlm.lora import LoraSettings
    from real.vlm.model import one_thread
    from real.vlm.ui_tars import SYSTEM, read_task, ui_tars_task
    from real.warmstart import WarmStart, warm_start
except ModuleNotFoundError as missing:
    raise ConfigError(
        f"policy.kind = 'vlm' trains a real model and needs {missing.name}, which is not installed: "
        "pip install torch 'dartsim[train]'; or take a preset whose policy is a surrogate, such as --preset dart"
    ) from None


_FIRST = "first.safetensors"
"""Weights that a learner on another node begins with."""


class HeldOut:
    """Evaluates versions on tasks that are never trained on, without a cluster.

    With a model of its own: it may be asked in a thread, while another one serves the run.

    Attributes:
        evaluations: All of them, oldest first.
    """

    def __init__(self, found: Models, vlm: Vlm) -> None:
        self._tasks = found.held_out
        self._attempts = found.config.trainer.evaluation.attempts_per_task
        self._turn_limit = found.config.rollout.max_turns
        self._model = VlmPolicy(vlm.twin(), keep_versions=2)
        maker = desktop_maker(found.config)
        self._desktops = [maker() for _ in range(min(64, len(self._tasks) * self._attempts))]
        self.evaluations: list[Evaluation] = []

    def evaluate(self, weights: Weights) -> Evaluation | None:
        """Return how well weights do; None without held-out tasks."""
        if not self._tasks:
            return None
        self._model.add(weights)
        found = evaluate(
            self._model,
            self._desktops,
            self._tasks,
            version=weights.version,
            turn_limit=self._turn_limit,
            attempts=self._attempts,
        )
        self.evaluations.append(found)
        return found


class EvaluatedLearner:
    """A learner whose weights are evaluated on held-out tasks now and then.

    Attributes:
        newest: The weights of the last update.
    """

    def __init__(self, inner: Learner, held_out: HeldOut, every_updates: int | None, *, first: Weights) -> None:
        self._once = Once(inner)
        self._held_out = held_out
        self._every = every_updates
        self.newest = first

    async def update(self, batch: Batch) -> UpdateResult:
        """Train, and evaluate if it is time.

        Raises:
            LearnerFault: As the learner.
            UpdateUncertain: If it trained, and the evaluation failed: only that is then tried again.
        """
        result = await self._once.update(batch)
        self.newest = result.weights
        with self._once.then(batch, "its evaluation"):
            if self._every is None or batch.update % self._every:
                return result
            # In a thread: in real time, desktops and engines go on meanwhile.
            evaluation = await asyncio.to_thread(self._held_out.evaluate, result.weights)
            if evaluation is None:
                return result
            return replace(result, metrics={**result.metrics, HELD_OUT: evaluation.success_rate})


@dataclass
class Learning:
    """A model in a run.

    Attributes:
        model: What the workers ask.
        learner: What trains it.
        held_out: What evaluates it.
        vlm: The model; in training, unless other processes train it: then with the weights that it began with.
        trainer: The learner without evaluation, whose state can be saved.
        promoted: The learner with promotion, inside ``learner``; None if nothing is promoted.
        collected: What ``curation.pool.file`` holds; None without one.
        successes: The run's pool, once it was filled.
    """

    model: VlmPolicy
    learner: EvaluatedLearner
    held_out: HeldOut
    vlm: Vlm
    trainer: RealLearner
    promoted: PromotedLearner | None
    collected: PoolFile | None
    _found: Models
    successes: SuccessPool | None = None

    @property
    def grammar(self) -> Grammar:
        """The words of its actions."""
        name, options = action_grammar(self._found.config)
        screen = self._found.config.policy.screen
        return make_grammar(name, screen, screen, **options)

    def close(self) -> None:
        """End the processes that train, if there are any; weights and state can be written all the same."""
        if isinstance(self.trainer, FsdpLearner | RayLearner):
            self.trainer.close()

    def evaluate(self, weights: Weights) -> float | None:
        """Return the success rate of weights on held-out tasks; None without such tasks."""
        evaluation = self.held_out.evaluate(weights)
        return None if evaluation is None else evaluation.success_rate

    def save(self, folder: Path) -> None:
        """Write the model, ready to be loaded by transformers, and the learner's state, ready to go on."""
        write_state(folder, self.trainer)

    def save_successes(self, folder: Path) -> None:
        """Write the newest successes of the run's own attempts, if it has a pool and there are any."""
        config = self._found.config
        kept = self.successes.learned(config.curation.pool.keep_per_task) if self.successes is not None else []
        if kept:
            source = {"kind": "run", "seed": config.run.seed, "updates": self.trainer.updates}
            write_pool(folder, kept, writes=token_meaning(self.vlm, config.policy.screen), source=source)

    def figures(self) -> dict[str, Any]:
        """Return what a run's summary holds of it, beside its success rates."""
        found: dict[str, Any] = {}
        if self.promoted is not None:
            found["promotion"] = promotion_figures(self.promoted.decisions, self.promoted.incumbent)
        if self.successes is not None:
            found["pool"] = pool_figures(self.successes, self.collected)
        return found

    @property
    def newest(self) -> Weights:
        """The last weights."""
        return self.learner.newest

    def local_workers(self, count: int) -> list[LocalWorker]:
        """Return workers that compute in threads of this process, each with a copy of the present weights."""
        version = self.trainer.weights()
        workers = []
        for index in range(count):
            policy = VlmPolicy(self.vlm.twin())
            policy.add(version)
            workers.append(LocalWorker(index, policy, version=version.version))
        return workers

    def film(self, task: Task, target: Path) -> Trajectory:
        """Let the last weights try a task, and write the episode as a GIF."""
        self.model.add(self.newest)
        limit = self._found.config.rollout.max_turns
        attempt = Attempt(0, task, 0, 0, 0, limit, self.newest.version)
        desktop = desktop_maker(self._found.config)()
        trajectory = play(self.model, [desktop], [attempt], version=self.newest.version)[0]
        frames = [np.asarray(turn.observation.screenshot) for turn in trajectory.turns]
        actions = [turn.reply.action for turn in trajectory.turns]
        episode_gif(frames, actions, target, grammar=self.grammar, end=f"reward {trajectory.reward:g}")
        return trajectory

    def fill(self, successes: SuccessPool, *, begun: bool = False) -> None:
        """Store the configured successes: those of the file, and the oracle's, scored by the first weights.

        Actions of the oracle that the model's grammar cannot write are left out: nothing could be trained on them.

        Args:
            successes: The run's pool.
            begun: Whether the run goes on: then its store has them.
        """
        self.successes = successes
        if begun:
            return
        for success in self.collected.successes if self.collected is not None else ():
            successes.add(scored(success, self.model.vlm), now=0.0)
        wanted = self._found.config.curation.pool.collected_per_task
        for task in self._found.tasks if wanted else ():
            for number in range(wanted):
                trajectory = demonstrate(self._found.config, task, number, self.model.vlm)
                if trajectory is not None:
                    successes.add(scored(trajectory, self.model.vlm), now=0.0)


def learning(
    found: Models,
    on_step: Callable[[str, int, int], None] | None = None,
    *,
    resume: Path | None = None,
    best: Path | None = None,
    checkpoints: Path | None = None,
    restore: Path | None = None,
) -> Learning:
    """Build the configured model, with its warm start, and what trains and evaluates it.

    Args:
        found: The configuration and what it names.
        resume: Folder of a finished run whose weights and optimizer state are taken up.
        on_step: Given the name of what is done, the steps done and the steps to do; for a progress bar.
        best: Folder for the promoted weights (``trainer.promotion``).
        checkpoints: Folder for the run's checkpoints (``storage.checkpoint_every_updates``).
        restore: The checkpoint from which an unfinished run goes on.
    """
    config = found.config
    seed = config.run.seed
    one_thread()
    vlm = build(vlm_config(config), seed=seed)
    if config.policy.warm_start_steps and resume is None:
        _warm_start(found, vlm, on_step)
    trainer = _trainer(config, vlm)
    if resume is not None:
        if not (resume / CHECKPOINT).is_dir():
            raise ConfigError(f"{resume} holds no {CHECKPOINT}: the run was not finished; run it again")
        trainer.load(resume / CHECKPOINT)
        if isinstance(trainer, FsdpLearner | RayLearner):
            vlm = _with(vlm, trainer.weights())
    model = VlmPolicy(vlm.twin(), keep_versions=config.rollout.num_workers + 4)
    held_out = HeldOut(found, vlm)
    promoted = promoting(found, vlm, trainer, best)
    saved = Saved(trainer, promoted)
    if restore is not None:
        saved.read(restore)
        model.add(trainer.weights())
    inner: Learner = promoted or trainer
    every_checkpoint = config.storage.checkpoint_every_updates
    if checkpoints is not None and every_checkpoint is not None:
        inner = CheckpointedLearner(inner, partial(saved.write, checkpoints), every_updates=every_checkpoint)
    file = config.curation.pool.file if resume is None else None
    collected = None if file is None else read_successes(Path(file), found, vlm)
    every_updates = config.trainer.evaluation.every_updates
    evaluated = EvaluatedLearner(inner, held_out, every_updates, first=trainer.weights())
    return Learning(model, evaluated, held_out, vlm, trainer, promoted, collected, found)


def _with(vlm: Vlm, weights: Weights) -> Vlm:
    """Return the model with other weights, which came as a snapshot or as a folder."""
    if not isinstance(weights.source, dict):
        return build(replace(vlm.config, folder=str(weights.source)))
    vlm.use(weights.source)
    return vlm


def _trainer(config: Config, vlm: Vlm) -> RealLearner:
    """Return what trains: here, or where Ray places it."""
    if not placed(config, "learner"):
        return _trainer_here(config, vlm)
    folder = Path(mkdtemp(prefix="dartsim-learner-", dir=config.ray.folder))
    snapshot = vlm.snapshot()
    save_file(snapshot, folder / _FIRST)
    try:
        learner = ray_learner(config, partial(trainer_there, config, folder), folder, Weights(0, snapshot))
    except BaseException:
        rmtree(folder, ignore_errors=True)
        raise
    finalize(learner, rmtree, folder, ignore_errors=True)
    return learner


def trainer_there(config: Config, folder: Path) -> TorchLearner | FsdpLearner:
    """Return the configured learner as it is at the very beginning; called where Ray placed it.

    Raises:
        ConfigError: If the folder of its first weights is not there.
    """
    if not (folder / _FIRST).is_file():
        raise ConfigError(
            f"there is no {_FIRST} in {str(folder)!r} on the node of the learner; set ray.folder to a folder of a disk "
            "that all nodes share"
        )
    one_thread()
    vlm = build(vlm_config(config), seed=config.run.seed)
    vlm.use(load_file(folder / _FIRST))
    return _trainer_here(config, vlm, folder)


def _trainer_here(config: Config, vlm: Vlm, base: Path | None = None) -> TorchLearner | FsdpLearner:
    """Return what trains: in this process, or in several, from a copy of the model on disk below ``base``."""
    settings = learner_config(config)
    options: dict[str, Any] = {"seed": config.run.seed, "select": _selector(config)}
    if config.backend.learner != "fsdp":
        return TorchLearner(vlm, settings, **options)
    fsdp = config.trainer.fsdp
    folder = Path(fsdp.folder or mkdtemp(prefix="dartsim-learner-", dir=base))
    spread = fsdp_settings(config)
    learner = FsdpLearner(vlm, export(vlm, folder / "model"), folder, settings, spread, **options)
    if fsdp.folder is None:
        finalize(learner, rmtree, folder, ignore_errors=True)
    return learner


def vlm_config(config: Config) -> VlmConfig:
    """Return the model that the configuration describes."""
    policy = config.policy
    if policy.grammar == "ui_tars":
        return _writer(config)
    make = {"clicks": tiny, "clicks_and_done": tiny_agent, "compact": tiny_writer}[policy.grammar]
    made = make(
        columns=policy.grid,
        rows=policy.grid,
        family=policy.family,
        max_images=policy.max_images,
        max_texts=policy.max_texts,
    )
    made = replace(made, prompts=replace(made.prompts, images_after_cut=policy.images_after_cut))
    return made if policy.model is None else replace(made, folder=policy.model, dtype=policy.dtype)


def _writer(config: Config) -> VlmConfig:
    """Return a model of a checkpoint's folder that writes free text in UI-TARS's form."""
    policy = config.policy
    absolute = bool(action_grammar(config)[1]["absolute"])
    text = ui_tars_task(absolute) if policy.instructions is None else read_task(Path(policy.instructions))
    return VlmConfig(
        family=policy.family,
        folder=policy.model,
        dtype=policy.dtype,
        prompts=PromptStyle(
            system=SYSTEM,
            max_images=policy.max_images,
            images_after_cut=policy.images_after_cut,
            max_texts=policy.max_texts,
            task=text,
        ),
        decoding=Decoding(temperature=policy.temperature, max_new_tokens=policy.max_new_tokens, grammar="free"),
    )


def learner_config(config: Config) -> LearnerConfig:
    """Return how the configuration wants weights to be updated."""
    optimizer, lora = config.trainer.optimizer, config.trainer.lora
    values = config.trainer.objective.model_dump()
    objective = ObjectiveConfig(**values | {"advantage": AdvantageConfig(**values["advantage"])})
    return LearnerConfig(
        objective=objective,
        learning_rate=optimizer.learning_rate,
        warmup_updates=optimizer.warmup_updates,
        weight_decay=optimizer.weight_decay,
        max_grad_norm=optimizer.max_grad_norm,
        minibatches=optimizer.minibatches,
        max_tokens=optimizer.max_tokens,
        checkpointing=config.backend.learner == "fsdp" and config.trainer.fsdp.checkpointing,
        lora=None if lora.rank is None else LoraSettings(rank=lora.rank, alpha=lora.alpha),
        mismatch_bound=config.trainer.mismatch_bound,
    )


def _warm_start(found: Models, vlm: Vlm, on_step: Callable[[str, int, int], None] | None) -> None:
    steps = found.config.policy.warm_start_steps
    shown = [turn for number, task in enumerate(found.tasks) for turn in oracle_turns(found.config, task, number) or ()]
    warm_start(
        vlm,
        shown,
        WarmStart(steps=steps, seed=found.config.run.seed),
        on_step=lambda step, loss: on_step("warm start", step + 1, steps) if on_step else None,
    )


def _selector(config: Config) -> Callable[[Batch], Sequence[bool]] | None:
    selection = config.curation.selection
    rule: TurnSelection = AllTurns()
    if selection.rule == "high_entropy":
        rule = HighEntropyTurns(selection.share, keep_stored=selection.keep_stored)
    if isinstance(rule, AllTurns):
        return None

    def select(batch: Batch) -> Sequence[bool]:
        kept = (rule.select(group).kept for group in batch.groups)
        return [flag for group in kept for trajectory in group for flag in trajectory]

    return select
