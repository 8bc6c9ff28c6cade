"""The vision-language model of a run, which sees screenshots and writes actions; what trains it and evaluates it.

It needs torch and transformers, so it is imported only if a configuration has a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.core.install import torch_missing
from dartsim.core.ports import Learner
from dartsim.core.registry import component
from dartsim.core.rewards import mean_over_tasks
from dartsim.core.types import Trajectory, UpdateResult, Version, Weights
from dartsim.curation import SuccessPool
from dartsim.observe.records import HELD_OUT
from dartsim.run.content import desktop_maker
from dartsim.run.prepared_run import PreparedRun
from dartsim.store.checkpoints import write_checkpoint
from dartsim.trainer.update_steps import LearnerWithSteps, UpdateStep

try:
    from dartsim.real.evaluate import evaluate
    from dartsim.real.learners.backend import RealLearner, turn_selector
    from dartsim.real.learners.fsdp.learner import FsdpLearner
    from dartsim.real.pool_files import PoolFile, token_meaning, write_pool
    from dartsim.real.vlm import Vlm, VlmPolicy, build
    from dartsim.real.vlm.lora import ADAPTER_FILE
    from dartsim.real.vlm.model import one_thread
    from dartsim.real.vlm.plan import vlm_config
    from dartsim.real.vlm.policy import complete
    from dartsim.run.demonstrations import demonstrate, read_successes, scored
except ModuleNotFoundError as missing:
    raise torch_missing(missing) from None

MODEL, CHECKPOINT = "model", "checkpoint"
"""Folders of a state: the model as transformers reads it, and the learner's whole state."""
SCORED_AT_ONCE = 8
"""Stored successes whose log-probabilities are computed together."""


@dataclass(kw_only=True)
class ServedModel:
    """A model that acts."""

    model: VlmPolicy
    vlm: Vlm

    @property
    def weights(self) -> Weights:
        newest = self.model.versions[-1]
        return Weights(newest, self.vlm.snapshot())

    def token_meaning(self, config: Config) -> dict[str, Any]:
        """Return the meaning of its tokens, for a pool of its successes."""
        return token_meaning(self.vlm, config.policy.screen)


def served_model(config: Config, version: Version = 0) -> ServedModel:
    """Return the configured model, read from its folder, whose weights have a given version.

    Raises:
        ConfigError: If the folder contains no model.
    """
    one_thread()
    try:
        vlm = build(vlm_config(config), seed=config.run.seed)
    except (OSError, ValueError) as error:
        raise ConfigError(f"policy.model = {config.policy.model!r} cannot be read as a model: {error}") from None
    policy = VlmPolicy(vlm.twin())
    policy.add(Weights(version, vlm.snapshot()))
    return ServedModel(model=policy, vlm=vlm)


class HeldOut:
    """Evaluates weights on tasks that are never trained on, with its own desktops and model, beside the run.

    It runs in a thread while another model serves the run. Every version plays the same attempts with the same seeds.
    On real desktops, held-out attempts run among those of the run instead (``dartsim.run.held_out_attempts``).
    """

    def __init__(self, prepared: PreparedRun, vlm: Vlm) -> None:
        config = prepared.config
        self._tasks = () if config.backend.boots else prepared.held_out
        self._attempts = config.trainer.evaluation.attempts_per_task
        self._turn_limit = config.rollout.max_turns
        self._vlm = vlm.twin() if self._tasks else vlm
        maker = desktop_maker(config)
        self._desktops = [maker() for _ in range(min(64, len(self._tasks) * self._attempts))]
        self.evaluations: list[Mapping[str, float]] = []
        """The mean reward of each task, in each evaluation."""

    def evaluate(self, weights: Weights) -> float | None:
        """Return the mean reward over tasks; None if there are none."""
        if not self._tasks:
            return None
        policy = VlmPolicy(self._vlm, keep_versions=2)
        policy.add(Weights(1, weights.source))
        means = evaluate(
            policy, self._desktops, self._tasks, version=1, turn_limit=self._turn_limit, attempts=self._attempts
        )
        self.evaluations.append(means)
        return mean_over_tasks(means)


@dataclass(kw_only=True)
class TrainedModel(ServedModel):
    """A model that acts in a run and is trained by it, with its evaluation and its stored successes."""

    learner: Learner
    held_out: HeldOut
    trainer: RealLearner
    collected: PoolFile | None
    prepared: PreparedRun
    successes: SuccessPool | None = None

    def close(self) -> None:
        """End the training processes, if any; weights and state can still be written."""
        if isinstance(self.trainer, FsdpLearner):
            self.trainer.close()

    def save(self, folder: Path) -> None:
        """Write the model as transformers reads it, and the learner's state, to continue from."""
        self.trainer.save_model(folder / MODEL)
        self.trainer.save(folder / CHECKPOINT)

    def save_successes(self, folder: Path) -> None:
        """Write the newest successes of the run's own attempts, if any are in a pool."""
        config = self.prepared.config
        learned = self.successes.learned() if self.successes is not None else []
        if learned:
            source = {"kind": "run", "seed": config.run.seed, "updates": self.trainer.updates}
            write_pool(folder, learned, writes=self.token_meaning(config), source=source)

    def figures(self) -> dict[str, Any]:
        """Return its figures for the run's summary, other than success rates."""
        if self.successes is None:
            return {}
        pool: dict[str, Any] = {"stored": len(self.successes), **dict(sorted(self.successes.counts.items()))}
        if self.collected is not None:
            found = self.collected
            pool["file"] = {"successes": len(found.successes), "unknown_tasks": list(found.unknown)}
        return {"pool": pool}

    @property
    def weights(self) -> Weights:
        return self.trainer.weights()

    def fill(self, successes: SuccessPool, *, begun: bool = False) -> None:
        """Store the configured successes: those of the file, and the oracle's, scored by the first weights.

        Successes of the oracle with actions that the model's grammar cannot write are left out: they cannot be trained.
        """
        self.successes = successes
        if begun:
            return
        collected = self.collected.successes if self.collected is not None else ()
        for start in range(0, len(collected), SCORED_AT_ONCE):
            for success in self._scored(collected[start : start + SCORED_AT_ONCE]):
                successes.add(success, now=0.0)
        wanted = self.prepared.config.curation.pool.collected_per_task
        for task in self.prepared.tasks if wanted else ():
            for number in range(wanted):
                trajectory = demonstrate(self.prepared.config, task, number, self.model.vlm)
                if trajectory is not None:
                    successes.add(scored(trajectory, self.model.vlm), now=0.0)

    def _scored(self, successes: Sequence[Trajectory]) -> Sequence[Trajectory]:
        """Return successes with log-probabilities: their own, or those of the first weights.

        The ranks compute them if there are any, because one reply of a 7B model takes minutes on a CPU.
        """
        lack = any(turn.reply.logprobs is None for success in successes for turn in success.turns)
        if lack and isinstance(self.trainer, FsdpLearner):
            return self.trainer.score(successes)
        return [scored(success, self.model.vlm) for success in successes]


def trained_model(
    prepared: PreparedRun, *, checkpoints: Path | None = None, restore: Path | None = None
) -> TrainedModel:
    """Build the configured model, its trainer and its evaluation.

    Args:
        prepared: The configuration.
        checkpoints: Where checkpoints are written; None: none are.
        restore: The checkpoint to continue from.
    """
    config = prepared.config
    one_thread()
    vlm = build(vlm_config(config), seed=config.run.seed)
    trainer: RealLearner = component("learner", config.backend.learner).train(
        config, vlm, seed=config.run.seed, select=turn_selector(config)
    )
    if restore is not None:
        trainer.load(restore / CHECKPOINT)
        if isinstance(trainer, FsdpLearner):  # engines start with its weights
            vlm = _with(vlm, trainer.weights())
    model = VlmPolicy(vlm.twin(), keep_versions=config.rollout.num_workers + 4)
    if restore is not None:
        model.add(trainer.weights())
    held_out = HeldOut(prepared, vlm)
    steps: list[UpdateStep] = []
    if checkpoints is not None:
        every = config.trainer.checkpoint_every_updates
        steps.append(UpdateStep("its checkpoint", every, partial(_checkpointed, trainer, checkpoints)))
    if (every_updates := config.trainer.evaluation.every_updates) is not None:
        steps.append(UpdateStep("its evaluation", every_updates, partial(_evaluated, held_out)))
    file = config.curation.pool.file
    collected = None if file is None else read_successes(Path(file), prepared, vlm)
    return TrainedModel(
        model=model,
        vlm=vlm,
        learner=LearnerWithSteps(trainer, steps),
        held_out=held_out,
        trainer=trainer,
        collected=collected,
        prepared=prepared,
    )


def _checkpointed(trainer: RealLearner, root: Path, update: int, result: UpdateResult) -> UpdateResult:
    checkpoint = write_checkpoint(root, update, lambda folder: trainer.save(folder / CHECKPOINT))
    return replace(result, checkpoint=checkpoint)


def _evaluated(held_out: HeldOut, update: int, result: UpdateResult) -> UpdateResult:
    mean = held_out.evaluate(result.weights)
    return result if mean is None else replace(result, metrics={**result.metrics, HELD_OUT: mean})


def _with(vlm: Vlm, weights: Weights) -> Vlm:
    """Return the model with other weights, from a snapshot, an adapter or a folder."""
    if not isinstance(weights.source, dict) and not (Path(weights.source) / ADAPTER_FILE).is_file():
        return build(replace(vlm.config, folder=str(weights.source)))
    vlm.use(complete(weights, vlm.snapshot(copy=False)))
    return vlm
