"""One line after a run: what limited it, what it had too much of, and what to try next.

What limits is measured: the trainer's and the desktops' time by state, and turns against the closed-form bounds. What
would suffice is a closed form (``dartsim.lab.analytic_model``), without another simulation; of rules that it does not
know, and of real components, the line says that this is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dartsim.core.errors import DartsimError
from dartsim.lab.analytic_model import generated_turns, one_batch_at_a_time, predict, unknown_rules
from dartsim.lab.bounds import alone_seconds, bounds
from dartsim.observe.records import Snapshot
from dartsim.run.prepare import PreparedRun

FULL = 0.9
"""Share of its time from which the trainer is the limit."""
HELD = 0.1
"""Share of the desktops' time without an attempt from which desktops are not the limit."""
SYNCING = 0.2
"""Share of the trainer's time spent waiting for weight syncs and publications that makes these the limit."""
NEAR = 0.85
"""Share of a component's closed-form bound from which the component is the limit."""
SLOWER = 2.0
"""Wait for a reply, over that of an engine's only request, from which engines are the limit and not desktops."""
MARGIN = 1.75
"""What is said to suffice generates as much more than is trained: closed forms leave out what is dropped as stale."""
SAME = 0.95
"""Share of what all desktops generate from which fewer generate the same."""
SPARE = 0.9
"""At most this share of what there is must suffice, or nothing is said."""

WITHOUT_ATTEMPT = ("wait_admission", "wait_unit")


def run_figures(prepared: PreparedRun, figures: Mapping[str, Any], snapshots: Sequence[Snapshot]) -> dict[str, Any]:
    """Return the bounds of a run (``dartsim.lab.bounds``) and its ``verdict``."""
    more = bounds(prepared, figures, snapshots)
    return {**more, "verdict": verdict(prepared, {**figures, **more})}


def verdict(prepared: PreparedRun, figures: Mapping[str, Any]) -> str:
    """Return what limited a run, what would have sufficed, and what to try, in one line.

    Args:
        prepared: The configuration and what it names.
        figures: Of the run, with those of ``dartsim.lab.bounds.bounds``.
    """
    if figures["failure"]:
        return str(figures["failure"])
    if not figures["num_updates"] or not figures["generated_turns_per_minute"]:
        return "What limits it is unknown: nothing was generated and trained after the warm-up. Try more hours."
    trainer, desktops = figures["trainer_shares"], figures["desktop_shares"]
    trained = trainer["training"]
    syncing = trainer["wait_sync"] + trainer["wait_publish"]
    free = sum(desktops[name] for name in WITHOUT_ATTEMPT)
    if trained >= FULL:
        return f"Limited by the trainer ({trained:.0%}). {_for_the_trainer(prepared, figures)}"
    if one_batch_at_a_time(prepared.config):
        return (
            f"Limited by taking turns: desktops work {1.0 - free:.0%} of the time, then the trainer, {trained:.0%}. "
            "Try a scheduler that overlaps them, such as dart-measured."
        )
    if syncing >= SYNCING:
        return (
            f"Limited by weight sync: the trainer waits for it {syncing:.0%} of its time, and trains {trained:.0%}. "
            "Try trainer.wait_for_sync=false or rollout.sync.mode=keep."
        )
    if free >= HELD:
        return (
            f"Limited by admission: desktops wait {free:.0%} of their time for it, and the trainer trains only "
            f"{trained:.0%}. Try more batches ahead (curation.admission, curation.max_ahead), or fewer desktops."
        )
    return _for_the_supply(prepared, figures, trained, free)


def _for_the_trainer(prepared: PreparedRun, figures: Mapping[str, Any]) -> str:
    """Return how many desktops and engines suffice for a trainer that is never idle, and what to try."""
    rollout = prepared.config.rollout
    supply = _supply(prepared, figures)
    if isinstance(supply, str):
        return f"{supply} {_faster(prepared)}"
    wanted = MARGIN * figures["trained_turns_per_minute"]
    envs = _least(rollout.num_envs, lambda count: supply(count, rollout.num_workers) >= wanted)
    workers = _least(rollout.num_workers, lambda count: supply(rollout.num_envs, count) >= wanted)
    if workers is not None:
        spare = rollout.num_workers - workers
        tried = f"Try {spare} of the {rollout.num_workers} engine GPUs for the trainer (`dartsim plan`)."
    else:
        tried = _faster(prepared)
    return " ".join([*([f"About {envs} of {rollout.num_envs} desktops suffice."] if envs is not None else []), tried])


def _faster(prepared: PreparedRun) -> str:
    """Return how the trainer could be faster: with fewer tokens per turn, if turns can share sequences."""
    config = prepared.config
    packed = config.trainer.optimizer.pack == "trajectories" and config.policy.images_after_cut is not None
    if packed or config.rollout.max_turns == 1:
        return "Try a faster trainer (cluster.learner)."
    return "Try several turns in one sequence (policy.images_after_cut and trainer.optimizer.pack)."


def _for_the_supply(prepared: PreparedRun, figures: Mapping[str, Any], trained: float, free: float) -> str:
    """Return whether desktops, engines or the driver limit a run whose trainer has time, and what to try."""
    config, made = prepared.config, figures["generated_turns_per_minute"]
    known: Mapping[str, float] = figures.get("bounds") or {}
    replying = 60.0 * figures["desktop_shares"]["generating"] * config.rollout.num_desktops / made
    engine = config.cluster.engine
    alone = alone_seconds(prepared, figures["turns_per_trajectory"]) + engine.overhead_seconds if known else None
    rest = f"The trainer trains {trained:.0%}."
    if made >= NEAR * known.get("driver", float("inf")):
        return f"Limited by the control process (cluster.engine.control_seconds). {rest} Try cheaper requests."
    slow = alone is not None and replying >= SLOWER * alone
    if slow or made >= NEAR * known.get("engines", float("inf")):
        why = f"replies take {replying / alone:.1f} times as long as alone" if alone else "they are full"
        supply = _supply(prepared, figures)
        enough = ""
        if not isinstance(supply, str):
            wanted = SAME * supply(config.rollout.num_envs, config.rollout.num_workers)
            envs = _least(config.rollout.num_envs, lambda count: supply(count, config.rollout.num_workers) >= wanted)
            enough = f" About {envs} of {config.rollout.num_envs} desktops suffice." if envs is not None else ""
        return (
            f"Limited by the engines ({why}).{enough} {rest} Try more engines (rollout.num_workers), or "
            "rollout.routing.rule=session_affine."
        )
    if alone is None:
        return (
            f"Limited by desktops and engines ({1.0 - free:.0%} of the desktops' time in attempts); which of them is "
            f"unknown without a model. {rest} Try `dartsim cluster RUN`."
        )
    return f"Limited by the desktops ({1.0 - free:.0%} in attempts). {rest} {_more_desktops(prepared, figures)}"


def _more_desktops(prepared: PreparedRun, figures: Mapping[str, Any]) -> str:
    """Return how many desktops would keep the trainer busy, if that many help."""
    rollout = prepared.config.rollout
    supply = _supply(prepared, figures)
    if isinstance(supply, str):
        return f"{supply} Try more desktops (rollout.num_envs)."
    own = supply(rollout.num_envs, rollout.num_workers)
    goal = figures["bounds"]["trainer"] * own / max(figures["trained_turns_per_minute"], 1e-9)
    for factor in (1.25, 1.5, 2.0, 3.0, 4.0):
        count = round(factor * rollout.num_envs)
        try:
            if supply(count, rollout.num_workers) >= goal:
                return f"Try rollout.num_envs={count}, which should keep the trainer busy."
        except DartsimError:  # as many do not fit on the hosts
            return "Try more hosts for desktops (cluster.hosts.count)."
    return "Try more desktops and more engines (`dartsim plan`)."


def _supply(prepared: PreparedRun, figures: Mapping[str, Any]) -> Callable[[int, int], float] | str:
    """Return the usable turns per minute of numbers of desktops and engines; or why they are unknown."""
    if not figures.get("bounds"):
        return "How many desktops suffice is unknown: components are real (`dartsim cluster RUN` makes a twin)."
    if unknown := unknown_rules(prepared.config):
        return f"How many desktops suffice is unknown: no closed form knows {', '.join(unknown)}."
    config = prepared.config
    if config.policy.kind != "surrogate":
        return "How many desktops suffice is unknown: what can be trained changes as the model learns."
    predicted, version_seconds = predict(prepared), 60.0 * figures["minutes_per_version"]
    usable = predicted.usable_share * getattr(config.curation.selection, "share", 1.0)

    def supply(envs: int, workers: int) -> float:
        rollout = config.rollout.model_copy(update={"num_envs": envs, "num_workers": workers})
        changed = replace(prepared, config=config.model_copy(update={"rollout": rollout}))
        return usable * generated_turns(changed, predicted.turns_per_trajectory, version_seconds)[0]

    return supply


def _least(most: int, suffices: Callable[[int], bool]) -> int | None:
    """Return the least count that suffices; None if that is more than ``SPARE`` of what there is."""
    low, high = 1, int(SPARE * most)
    if high < 1 or not suffices(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle + 1, high)
    return low
