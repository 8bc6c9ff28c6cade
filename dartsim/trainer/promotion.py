"""Promotion: whether new weights are better than the promoted ones, on held-out tasks, and when to roll back.

    evaluation of a version --judge--> promote      it becomes the incumbent
                                       keep         not shown to be better or worse; training goes on
                                       roll back    shown to be worse; training resumes from the promoted version

Both versions play the same tasks, which are compared in pairs, so that their difficulty cancels out.
``dartsim.trainer.promoted`` puts this around a learner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from dartsim.config.sections.trainer import PromotionConfig
from dartsim.core.types import Trajectory, Version

_BLOCK = 2_000_000
"""Draws held in memory at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutRewards:
    """The rewards of one version on held-out tasks."""

    version: Version
    rewards: Mapping[str, Sequence[float]]
    num_masked: int = 0

    @classmethod
    def of(cls, version: Version, trajectories: Iterable[Trajectory]) -> HeldOutRewards:
        rewards: dict[str, list[float]] = {}
        num_masked = 0
        for trajectory in trajectories:
            if trajectory.reward is None:
                num_masked += 1
            else:
                rewards.setdefault(trajectory.attempt.task.id, []).append(trajectory.reward)
        return cls(version=version, rewards=rewards, num_masked=num_masked)

    def task_means(self) -> dict[str, float]:
        """Return the mean reward of each task that has an unmasked attempt."""
        return {task: sum(rs) / len(rs) for task, rs in self.rewards.items() if rs}

    @property
    def mean(self) -> float | None:
        """Mean over tasks of their mean rewards; None without tasks."""
        means = self.task_means().values()
        return sum(means) / len(means) if means else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedComparison:
    """A paired bootstrap of two versions on the same tasks.

    Attributes:
        num_tasks: Pairs.
        gain: Mean over tasks of (new - old) mean reward.
        low: Lower bound of the gain, one-sided, at the rule's confidence.
        high: Upper bound, likewise.
        share_better: Share of resamples in which the gain is positive; ties count half.
    """

    num_tasks: int
    gain: float
    low: float
    high: float
    share_better: float


class Verdict(StrEnum):
    """What to do with new weights."""

    PROMOTE = "promote"
    KEEP = "keep"
    ROLL_BACK = "roll_back"


COUNTED = {
    Verdict.PROMOTE: "promotion/promoted",
    Verdict.KEEP: "promotion/kept",
    Verdict.ROLL_BACK: "promotion/rolled_back",
}
"""How each verdict is counted: a metric of the update that was judged, and a count of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A verdict, with its reason.

    Attributes:
        verdict: What to do.
        reason: ``first``, ``better``, ``worse``, ``unclear`` or ``too_few_tasks``.
        version: Version that was judged.
        promoted: The promoted version from now on; None if there is none.
        comparison: The figures behind the verdict; None where nothing was compared.
    """

    verdict: Verdict
    reason: str
    version: Version
    promoted: Version | None
    comparison: PairedComparison | None = None


def paired_bootstrap(
    old: Mapping[str, float],
    new: Mapping[str, float],
    rng: np.random.Generator,
    *,
    confidence: float = 0.95,
    resamples: int = 4_000,
) -> PairedComparison:
    """Compare two versions on the tasks that both played, resampling tasks.

    Bounds are percentiles of the resampled mean differences. If all differences are equal, both bounds are
    exactly that difference.

    Args:
        old: Mean reward by task of one version.
        new: The same of the other.
        rng: Draws the resamples.
        confidence: Of each bound, one-sided.
        resamples: How many.

    Raises:
        ValueError: If the versions have no task in common.

    Source: B. Efron, R. Tibshirani, "An Introduction to the Bootstrap" (1993), percentile intervals.
    """
    tasks = sorted(old.keys() & new.keys())
    if not tasks:
        raise ValueError(f"wanted tasks that both versions played, got none among {len(old)} and {len(new)}")
    differences_N = np.array([new[task] - old[task] for task in tasks])
    if differences_N.min() == differences_N.max():
        gain = float(differences_N[0])
        return PairedComparison(
            num_tasks=len(tasks), gain=gain, low=gain, high=gain, share_better=float(np.heaviside(gain, 0.5))
        )
    gains = resampled_means(differences_N, rng, resamples)
    low, high = np.quantile(gains, [1.0 - confidence, confidence])
    return PairedComparison(
        num_tasks=len(tasks),
        gain=float(differences_N.mean()),
        low=float(low),
        high=float(high),
        share_better=float(np.heaviside(gains, 0.5).mean()),
    )


def resampled_means(values_N: NDArray[np.float64], rng: np.random.Generator, resamples: int) -> NDArray[np.float64]:
    """Return [resamples] means of N values drawn with replacement, a block at a time."""
    means = np.empty(resamples)
    block = max(1, _BLOCK // len(values_N))
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        means[start : start + size] = values_N[rng.integers(len(values_N), size=(size, len(values_N)))].mean(1)
    return means


@dataclass(slots=True, kw_only=True)
class Promotions:
    """The versions that were promoted, and what each evaluation led to.

    Invariant: ``promoted`` changes only by the verdict promote; a roll-back returns to it.
    """

    rule: PromotionConfig
    rng: np.random.Generator
    promoted: HeldOutRewards | None = None
    decisions: list[Decision] = field(default_factory=list)
    counts: Counter[Verdict] = field(default_factory=Counter)

    def judge(self, evaluation: HeldOutRewards, *, against: HeldOutRewards | None = None) -> Decision:
        """Judge a version by its evaluation. The first one with enough tasks is promoted.

        Args:
            evaluation: Rewards of the version.
            against: A new evaluation of the promoted version, with the seeds of ``evaluation``; by default the one it
                was promoted by, which was probably lucky.

        Raises:
            ValueError: If ``against`` is of another version than the promoted one.
        """
        if against is not None:
            if self.promoted is None or self.promoted.version != against.version:
                promoted = "none" if self.promoted is None else self.promoted.version
                raise ValueError(f"the promoted version is {promoted}, got an evaluation of {against.version} for it")
            self.promoted = against
        decision = self._decide(evaluation)
        if decision.verdict is Verdict.PROMOTE:
            self.promoted = evaluation
        self.decisions.append(decision)
        self.counts[decision.verdict] += 1
        return decision

    def _decide(self, evaluation: HeldOutRewards) -> Decision:
        rule, best, means = self.rule, self.promoted, evaluation.task_means()
        common = means.keys() if best is None else means.keys() & best.task_means().keys()
        if len(common) < rule.min_tasks:
            return self._decision(Verdict.KEEP, "too_few_tasks", evaluation)
        if best is None:
            return self._decision(Verdict.PROMOTE, "first", evaluation)
        comparison = paired_bootstrap(
            best.task_means(), means, self.rng, confidence=rule.confidence, resamples=rule.resamples
        )
        if comparison.low > rule.min_gain:
            return self._decision(Verdict.PROMOTE, "better", evaluation, comparison)
        if rule.max_loss is not None and comparison.high < -rule.max_loss:
            return self._decision(Verdict.ROLL_BACK, "worse", evaluation, comparison)
        return self._decision(Verdict.KEEP, "unclear", evaluation, comparison)

    def _decision(
        self, verdict: Verdict, reason: str, evaluation: HeldOutRewards, comparison: PairedComparison | None = None
    ) -> Decision:
        promoted = self.promoted.version if self.promoted is not None else None
        if verdict is Verdict.PROMOTE:
            promoted = evaluation.version
        return Decision(
            verdict=verdict, reason=reason, version=evaluation.version, promoted=promoted, comparison=comparison
        )
