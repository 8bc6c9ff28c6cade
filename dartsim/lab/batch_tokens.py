"""The tokens that an update computes per turn, for groups of attempts with the surrogate policy's lengths."""

from __future__ import annotations

from math import exp, log1p
from statistics import NormalDist, fmean

from dartsim.config.sections.policy import SurrogateConfig
from dartsim.run.prepared_run import PreparedRun
from dartsim.sim.surrogate import log_parameters


def tokens_per_turn(prepared: PreparedRun) -> float:
    """Return the mean tokens that an update computes per turn."""
    config, known = prepared.config, prepared.difficulties.values()
    rate = fmean(task.success_rate for task in known) if known else 0.0
    num_turns = surrogate_lengths(config.surrogate, success_rate=rate, max_turns=config.rollout.max_turns)
    groups = max(1, len(num_turns) // config.curation.attempts.group_size)
    tokens = sum(prepared.update_tokens.of_group(num_turns[number::groups]) for number in range(groups))
    return tokens / sum(num_turns)


def surrogate_lengths(config: SurrogateConfig, *, success_rate: float, max_turns: int, count: int = 500) -> list[int]:
    """Return numbers of turns at evenly spaced quantiles of the surrogate policy's distribution of lengths.

    The section's defaults are those of DART's measured run.
    """
    lengths = []
    for success, number in ((True, round(count * success_rate)), (False, count - round(count * success_rate))):
        mu, sigma = log_parameters(config, success=success)
        # The tasks' length factors (lognormal with mean 1) widen the spread of a single attempt.
        added = log1p(config.task_length_sd**2)
        spread = NormalDist(mu - added / 2.0, (sigma**2 + added) ** 0.5)
        drawn = (round(exp(spread.inv_cdf((place + 0.5) / number))) for place in range(number))
        lengths += [min(max(2 if success else 1, turns), max_turns) for turns in drawn]
    return lengths
