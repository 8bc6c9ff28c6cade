"""A trainer's logs as a table for ``dartsim predict``: what they determine, what is assumed and why."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import exp, inf, isfinite, log, sqrt
from pathlib import Path
from statistics import NormalDist, fmean, linear_regression, median, stdev
from typing import Any

from dartsim.config.settings import merge
from dartsim.core.errors import ConfigError
from dartsim.lab.published import Setup, check_table, setup
from dartsim.lab.step_logs import Values, read_logs

NAMES: Mapping[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("log_names.toml").read_text(encoding="utf-8")
)
"""By framework: what the names in its logs mean."""

FIGURES = ("step_seconds", "update_seconds", "wait_seconds", "sync_seconds")
PROMPTS, REPLIES = "vllm:request_prompt_tokens", "vllm:request_generation_tokens"
GUESSED_SPREAD, GUESSED_GROUP = 0.8, 8
GROWTH = 1.1
"""Mean reply of the last third of the steps over that of the first, above which replies grow."""
STEADY_STEPS = 200
"""Steps over which ``dartsim predict`` takes a mean as steady although replies grow."""
NORMAL = NormalDist()


def import_logs(
    files: Sequence[Path], framework: str, given: Mapping[str, Any], steps: tuple[int, int] | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Return the logs of one run as a table with one fitted row, and what they determine, in sentences.

    Args:
        files: Its logs.
        framework: A key of ``NAMES``.
        given: What logs do not say, in the table's terms: machines, model, groups of a batch, settings of training.
        steps: First and last step to use; None: all but the first.

    Raises:
        ConfigError: If the logs are not usable, contradict themselves, or lack what must then be given.
    """
    run = _Run(files, framework, given, steps)
    table = merge(run.table(), given)
    checked = check_table(table, run.place)
    _check_speed(run.place, setup(checked, checked.rows[0], run.place), run.updates, table["rows"][0]["figures"])
    return table, run.measured


class _Run:
    """One run's steps in the terms of a table."""

    def __init__(
        self, files: Sequence[Path], framework: str, given: Mapping[str, Any], steps: tuple[int, int] | None
    ) -> None:
        self.place = ", ".join(str(file) for file in files)
        self.framework, self.names = framework, NAMES[framework]
        self.given = given.get("workload", {})
        self.logs = read_logs(files, self.names)
        self.measured: list[str] = []
        self.assumed: list[str] = []
        self.widths: dict[str, float] = {}
        self.steps = self._window(steps)
        counts = self._each("updates")
        self.updates = round((counts[-1] - counts[0]) / (len(counts) - 1)) if len(counts) > 1 else 1

    def table(self) -> dict[str, Any]:
        workload = self._workload()
        return {
            "id": Path(self.place.split(", ")[0]).stem,
            "title": f"Run of {self.framework}: {self.place}",
            "source": f"dartsim cluster import --from {self.framework}; names of {self.names['source']}",
            "fit": ["measured"],
            "workload": workload,
            "scheduler": self._scheduler(),
            "rows": [{"name": "measured", "figures": self._figures()}],
            "assumed": self.widths,
            "assumptions": [
                *self.assumed,
                "What logs do not say: GPUs of an engine and of a rank (1), updates as [training] has them by default.",
            ],
        }

    def _window(self, steps: tuple[int, int] | None) -> dict[int, Values]:
        """Return the steps to use, each with its time."""
        wanted = self.names["step_seconds"]
        timed = {step: each for step, each in sorted(self.logs.values.items()) if _sum(each, wanted) is not None}
        if len(timed) < 3:
            raise ConfigError(
                f"{self.place}: {len(timed)} steps have {' or '.join(wanted)}; three or more are wanted, "
                "of the process that trains"
            )
        numbers = list(timed)
        usual = median(after - before for before, after in pairwise(numbers))
        for before, after in pairwise(numbers):
            if after - before > 2 * usual:
                raise ConfigError(f"{self.place}: step {before} is followed by {after}: the log is cut in between")
        first, last = steps or (numbers[1], numbers[-1])
        used = {step: each for step, each in timed.items() if first <= step <= last}
        if len(used) < 2:
            raise ConfigError(
                f"{self.place}: {len(used)} steps from {first} to {last}; it has {numbers[0]} to {numbers[-1]}"
            )
        return used

    def _each(self, meaning: str) -> list[float]:
        """Return a meaning's value in the steps that have it."""
        entries = self.names.get(meaning, [])
        return [value for each in self.steps.values() if (value := _sum(each, entries)) is not None]

    def _mean(self, meaning: str) -> float | None:
        found = self._each(meaning)
        return fmean(found) if found else None

    def _scheduler(self) -> dict[str, Any]:
        found = self.names.get("asynchronous")
        if found is None or not any(found["names"] in name for each in self.steps.values() for name in each):
            self.assumed.append("Rollout and updates take turns: no metric of the log is of an asynchronous run.")
            return {"preset": "coupled"}
        self.assumed.append(f"The scheduler is {found['preset']}, {found['ahead']:g} batches ahead, as by default.")
        every = {"publish_every": self.updates, "updates_per_step": self.updates}
        return {"preset": found["preset"], "ahead": found["ahead"], **every}

    def _figures(self) -> list[dict[str, Any]]:
        """Return the times of a step, whose parts must fit into it."""
        step = self._mean("step_seconds") or 0.0
        figures = []
        for name in FIGURES:
            values = self._each(name)
            mean = fmean(values) if values else 0.0
            if mean > 1.1 * step:
                raise ConfigError(
                    f"{self.place}: {name} is {mean:,.5g} and the whole step {step:,.5g}: "
                    "milliseconds for seconds, or two runs"
                )
            if mean > 0.001 * step:
                spread = max(0.01, stdev(values) / mean / sqrt(len(values))) if len(values) > 1 else 0.1
                window = [min(self.steps) - 1, max(self.steps)]
                figures.append({"figure": name, "value": mean, "steps": window, "spread": spread})
                self.measured.append(f"{name} {mean:.4g}")
        times = sorted((at, time) for at, time in self.logs.times.items() if at in self.steps)
        if len(times) > 1:
            passed = (times[-1][1] - times[0][1]) / (times[-1][0] - times[0][0])
            if step > 1.5 * passed:
                raise ConfigError(
                    f"{self.place}: a step is said to take {step:,.5g} s, and was logged every {passed:,.5g} s: "
                    "milliseconds for seconds"
                )
        return figures

    def _workload(self) -> dict[str, Any]:
        prompt, reply = self._lengths()
        groups, size = self._batch(prompt + reply)
        longest = max(self._each("longest"), default=10.0 * reply)
        if reply > longest:
            raise ConfigError(
                f"{self.place}: replies of {reply:,.5g} tokens in the mean, {longest:,.5g} at most: two runs"
            )
        turns = max(1, round(self._mean("turns") or (self._mean("messages") or 2.0) / 2.0))
        if turns > 1:
            self.assumed.append(f"{turns} turns share an attempt's reply tokens evenly; observations count as replies.")
        self.measured.append(f"prompts of {prompt:.4g} and replies of {reply:.4g} tokens, {groups} x {size} attempts")
        return {
            "groups": groups,
            "group_size": size,
            "prompt_tokens": max(1, round(prompt)),
            "reply_tokens": reply / turns,
            "reply_spread": self._spread(reply, longest, groups * size),
            "longest": round(longest),
            "turns": turns,
            "grows": self._grows(),
        }

    def _lengths(self) -> tuple[float, float]:
        """Return the mean lengths of prompts and of all replies of an attempt, tokens."""
        prompt, reply, both = (self._mean(f"{name}_tokens") for name in ("prompt", "reply", "sequence"))
        prompt = self.given.get("prompt_tokens", prompt)
        if prompt is None and PROMPTS in self.logs.buckets:
            prompt = lognormal(self.logs.buckets[PROMPTS])[0]
        if both is not None:
            prompt = both - reply if prompt is None and reply is not None else prompt
            reply = both - prompt if reply is None and prompt is not None else reply
        if reply is None:
            raise ConfigError(f"{self.place} has no lengths of replies: {self.names.get('reply_tokens')}")
        if prompt is None:
            raise ConfigError(
                f"{self.place} has no lengths of prompts: give --set workload.prompt_tokens=N, or a file of "
                "vLLM's metrics"
            )
        return prompt, reply

    def _batch(self, length: float) -> tuple[int, int]:
        """Return groups of an update and attempts of a group."""
        tokens, totals, counted = self._mean("tokens"), self._each("total_tokens"), self._mean("sequences")
        if len(totals) > 1:
            tokens = (totals[-1] - totals[0]) / (max(self.steps) - min(self.steps))
        if counted is None and tokens is not None:
            counted = tokens / length
        groups, size = self.given.get("groups"), self.given.get("group_size")
        if groups is None and counted is None:
            raise ConfigError(
                f"{self.place} does not count attempts: give --set workload.groups=N --set workload.group_size=N"
            )
        if size is None:
            size = 1 if groups or (counted or 0.0) < 2 * GUESSED_GROUP * self.updates else GUESSED_GROUP
            self.assumed.append(f"Groups have {size} attempts; the log does not say (workload.group_size).")
        if groups is None:
            groups = max(1, round((counted or 0.0) / self.updates / size))
        elif counted is not None and abs(groups * size * self.updates / counted - 1.0) > 0.25:
            raise ConfigError(
                f"{self.place}: a step has {counted:,.0f} attempts in {self.updates} updates, and workload says "
                f"{groups} x {size} an update"
            )
        return groups, size

    def _spread(self, reply: float, longest: float, attempts: int) -> float:
        """Return the standard deviation of replies over their mean."""
        cut, deviation = self._mean("clipped") or 0.0, self._mean("reply_sd")
        if deviation is not None:
            self.measured.append(f"standard deviation of replies {deviation:.4g} tokens")
            return deviation / reply
        if REPLIES in self.logs.buckets:
            mean, spread = lognormal(self.logs.buckets[REPLIES])
            if abs(mean / reply - 1.0) > 0.5:
                raise ConfigError(f"{self.place}: replies of {reply:,.5g} tokens, and {mean:,.5g} by vLLM: two runs")
            self.measured.append(f"standard deviation of replies {spread:.3g} of their mean, by vLLM")
            return spread
        entries = [self.names.get(name, []) for name in ("reply_tokens", "longest")]
        both = [(_sum(each, entries[0]), _sum(each, entries[1])) for each in self.steps.values()]
        shares = [mean / most for mean, most in both if mean is not None and most is not None and 0.0 < mean < most]
        if cut > 0.0 and reply < 0.95 * longest:
            found = spread_of(reply / longest, cut)
            why = f"{cut:.2%} of them were cut at {longest:.0f} tokens"
        elif shares and attempts > 3:
            # The mean score of the largest of n normals is that of 1 - 0.56 / n, and the others are shorter than it.
            share, cut = exp(fmean(log(each) for each in shares)), 0.56 / attempts
            others = (share - 1.0 / attempts) * (1.0 - cut) * attempts / (attempts - 1)
            found = spread_of(others + cut, cut)
            why = "the longest of each step is known"
        else:
            self.assumed.append(f"Replies spread by {GUESSED_SPREAD} of their mean: the log says nothing of it.")
            self.widths["reply_spread"] = 0.5
            return GUESSED_SPREAD
        self.assumed.append(f"Replies are lognormal and spread by {found:.2f} of their mean: {why}.")
        self.widths["reply_spread"] = 0.15
        return found

    def _grows(self) -> bool:
        replies = self._each("reply_tokens") or self._each("sequence_tokens")
        third = len(replies) // 3
        grows = third > 0 and fmean(replies[-third:]) > GROWTH * fmean(replies[:third])
        if grows and len(self.steps) > STEADY_STEPS:
            last = max(self.steps)
            raise ConfigError(
                f"{self.place}: replies grow, and no step is like the mean of all: give at most {STEADY_STEPS}, "
                f"such as --steps {last - STEADY_STEPS + 1}:{last}"
            )
        return grows


def _check_speed(place: str, row: Setup, updates: int, figures: Sequence[Mapping[str, Any]]) -> None:
    """Refuse times at which GPUs would compute faster than their data sheet, or next to nothing."""
    load, machines = row.workload, row.machines
    seconds = {figure["figure"]: figure["value"] for figure in figures}
    attempts = load.groups * load.group_size * updates
    replies = attempts * (load.reply_tokens or 0.0) * load.turns
    rate = replies / seconds["step_seconds"] / (machines.colocated or machines.rollout or 1)
    if rate < 1.0:
        raise ConfigError(
            f"{place}: {replies:,.0f} tokens in {seconds['step_seconds']:,.5g} s are {rate:.2g} a second and GPU: "
            "milliseconds for seconds, or other machines"
        )
    flops = 6.0 * row.model.size.active * (replies + attempts * load.prompt_tokens)
    peak = (machines.colocated or machines.trainer or 1) * row.sheet.flops
    if (share := flops / peak / seconds.get("update_seconds", inf)) > 1.0:
        raise ConfigError(f"{place}: updates need {share:.0%} of the GPUs' peak: another unit, model, batch or GPU")


def spread_of(mean_share: float, cut: float) -> float:
    """Return standard deviation over mean of a lognormal, of which a share of ``cut`` lies above some length.

    ``mean_share``: the mean over that length, with what lies above counted as that long. The length has the score
    ``z``; with ``s`` for the logarithm's deviation the mean is ``exp(s^2 / 2 - s z) Phi(z - s) + cut`` lengths, which
    falls with ``s``.
    """
    z = NORMAL.inv_cdf(1.0 - cut)
    low, high = 0.0, 5.0
    for _ in range(60):
        middle = (low + high) / 2.0
        longer = exp(middle * middle / 2.0 - middle * z) * NORMAL.cdf(z - middle) + cut > mean_share
        low, high = (middle, high) if longer else (low, middle)
    return sqrt(exp(low * low) - 1.0)


def lognormal(counts: Mapping[float, float]) -> tuple[float, float]:
    """Return mean, and standard deviation over mean, of a lognormal through a histogram's cumulative counts.

    Raises:
        ConfigError: If fewer than two bounds lie between 2 and 98 % of the requests.
    """
    total = counts.get(inf, 0.0)
    inside = [(bound, count / total) for bound, count in sorted(counts.items()) if 0.02 * total < count < 0.98 * total]
    if len({share for _, share in inside}) < 2:
        raise ConfigError("vLLM's histograms have too few requests: save /metrics at the end of the run")
    s, middle = linear_regression([NORMAL.inv_cdf(share) for _, share in inside], [log(bound) for bound, _ in inside])
    return exp(middle + s * s / 2.0), sqrt(exp(s * s) - 1.0)


def _sum(values: Values, entries: Sequence[str]) -> float | None:
    """Return the sum of a meaning's names in a step; None if the step has none of them."""
    found = []
    for entry in entries:
        sign = -1.0 if entry.startswith("-") else 1.0
        known = [values[name] for name in entry.lstrip("-").split(" | ") if isfinite(values.get(name, inf))]
        found += [sign * known[0]] if known else []
    return sum(found) if found else None
