"""Builds a run's vision-language model, which sees screenshots and writes actions, and what trains it.

It needs torch and transformers, so it is imported only if a configuration has a model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from dartsim.core.install import torch_missing
from dartsim.core.types import UpdateResult, Weights
from dartsim.observe.records import HELD_OUT
from dartsim.run.backends import learner_backend
from dartsim.run.prepared_run import PreparedRun

try:
    from dartsim.real.learners.backend import RealLearner, turn_selector
    from dartsim.real.learners.fsdp.learner import FsdpLearner
    from dartsim.real.vlm import Vlm, VlmPolicy, build
    from dartsim.real.vlm.lora import ADAPTER_FILE
    from dartsim.real.vlm.model import one_thread
    from dartsim.real.vlm.plan import vlm_config
    from dartsim.real.vlm.policy import complete
    from dartsim.run.demonstrations import read_successes
    from dartsim.run.evaluation import HeldOut
    from dartsim.run.trained_model import CHECKPOINT, TrainedModel
    from dartsim.store.checkpoints import write_checkpoint
    from dartsim.trainer.update_steps import LearnerWithSteps, UpdateStep
except ModuleNotFoundError as missing:
    raise torch_missing(missing) from None


def learning(
    prepared: PreparedRun,
    on_step: Callable[[str, int, int], None] | None = None,
    *,
    checkpoints: Path | None = None,
    restore: Path | None = None,
) -> TrainedModel:
    """Build the configured model, its trainer and its evaluation."""
    config = prepared.config
    seed = config.run.seed
    one_thread()
    vlm = build(vlm_config(config), seed=seed)
    trainer: RealLearner = learner_backend(config).train(
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
