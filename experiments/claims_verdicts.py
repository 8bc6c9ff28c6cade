"""Compares each published statement with ours by fixed rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from experiments.headline import PUBLISHED, PUBLISHED_GPU
from experiments.study import Figures

BAND = 0.2
"""A ratio agrees if ours is within a fifth of the published one."""

GAIN_POINTS = 0.05
"""A gain of a few per cent agrees if ours is within five points of it."""

FLAT = 0.03
"""A series rises if every step rises by more than this share."""

FEW = 0.02
"""A bound holds but for stragglers if no more than this share of trained turns is above it."""

AREAL_REPLIES, AREAL_SECONDS = "replies of 8,000 tokens", 90.0
"""Nearest to AReaL's run of a 7B model: 1,000 updates in 25.4 h, replies of up to 27,000 tokens."""

PAGE = "DART, project page"
BLOG = "AReaL, blog/AReaL_v0_3.md"
DOCS = "AReaL, docs: asynchronous RL"


def pick(arms: Sequence[Figures], series: str, name: str | None = None, value: float | None = None) -> Figures:
    """Return the one arm of that series and name, or value.

    Raises:
        LookupError: If there is none.
    """
    for arm in arms:
        if arm["series"] == series and name in (None, arm["name"]) and value in (None, arm["value"]):
            return arm
    raise LookupError(f"no arm {series!r}, {name!r}, {value!r} among {[(a['series'], a['name']) for a in arms]}")


def mean(arm: Figures, figure: str) -> float:
    """Return the mean over seeds of a figure."""
    return float(arm["figures"][figure]["mean"])


def verdicts(found: Mapping[str, Any]) -> list[Figures]:
    """Return every published statement, ours and whether they agree; None: nothing was published to agree with."""
    return [
        *_table(found["table"]),
        *_interrupt(found["interrupt"]),
        *_staleness(found["staleness"]),
        *_sync(found["sync"]),
        *_desktops(found["desktops"], found["knee"]),
    ]


def _verdict(claim: str, statement: str, published: str, source: str, ours: str, agrees: bool | None = None) -> Figures:
    names = ("claim", "statement", "published", "source", "ours", "agrees")
    return dict(zip(names, (claim, statement, published, source, ours, agrees), strict=True))


def _published(preset: str, figure: str) -> float:
    known = PUBLISHED[preset][figure]
    assert known is not None, f"{figure} of {preset} is published"
    return known


def _near(ours: float, published: float) -> bool:
    return abs(ours / published - 1.0) <= BAND


def _table(arms: Sequence[Figures]) -> list[Figures]:
    coupled, dart = pick(arms, "ladder", "coupled"), pick(arms, "left out", "DART")
    words = {
        "trained_turns_per_minute": "DART over coupled: trained turns",
        "env_utilization": "DART over coupled: environment utilization",
        "gpu_utilization": "DART over coupled: utilization of rollout GPUs, all the time",
    }
    made = []
    for name, statement in words.items():
        published, ours = _published("dart", name) / _published("coupled", name), mean(dart, name) / mean(coupled, name)
        made.append(_verdict("table", statement, f"{published:.2f}x", PAGE, f"{ours:.2f}x", _near(ours, published)))
    gained = mean(pick(arms, "ladder", "+ decoupled"), "trained_turns_per_minute")
    before = mean(pick(arms, "ladder", "+ by rollout"), "trained_turns_per_minute")
    parts = "what each part is worth in trained turns"
    made.append(_verdict("table", parts, "no figure", PAGE, f"decoupling alone {gained / before:.2f}x", None))
    return made


def gpu_definitions(arms: Sequence[Figures]) -> list[Figures]:
    """Return the utilization of coupled and DART, and its ratio, under every definition of the GPUs' utilization."""
    coupled, dart = pick(arms, "ladder", "coupled"), pick(arms, "left out", "DART")
    fitted = (PUBLISHED_GPU - mean(coupled, "gpu_utilization")) / mean(coupled, "training_share")
    meets = mean(coupled, "gpu_utilization") + fitted * mean(coupled, "training_share")
    rollout, both = "gpu_utilization", "all_gpus_utilization"
    hybrid = mean(coupled, "hybrid_gpus_utilization")
    by_fit = f"coupled on hybrid GPUs, {fitted:.0%} of an update busy (fitted); DART's rollout GPUs"
    pairs = (
        ("rollout GPUs, all the time", mean(coupled, rollout), mean(dart, rollout)),
        (
            "rollout GPUs, while attempts run",
            mean(coupled, f"{rollout}_rollout_phase"),
            mean(dart, f"{rollout}_rollout_phase"),
        ),
        ("rollout GPUs, share of the peak token rate", mean(coupled, "gpu_peak_share"), mean(dart, "gpu_peak_share")),
        ("rollout and trainer GPUs apart, all of them", mean(coupled, both), mean(dart, both)),
        ("coupled on hybrid GPUs, an update busy throughout; DART's rollout GPUs", hybrid, mean(dart, rollout)),
        ("coupled on hybrid GPUs, an update busy throughout; all of DART's GPUs", hybrid, mean(dart, both)),
        (by_fit, meets, mean(dart, rollout)),
    )
    return [{"definition": words, "coupled": a, "dart": b, "ratio": b / a} for words, a, b in pairs]


def gain(arms: Sequence[Figures], series: str, seconds: float, mode: str = "interrupted, cache lost") -> float:
    """Return how many more tokens are generated in a mode than with requests that are waited for, a share."""
    ours, waited = (pick(arms, series, name, seconds) for name in (mode, "waited for"))
    return mean(ours, "gpu_peak_share") / mean(waited, "gpu_peak_share") - 1.0


def _interrupt(arms: Sequence[Figures]) -> list[Figures]:
    ours = gain(arms, AREAL_REPLIES, AREAL_SECONDS)
    kept = gain(arms, AREAL_REPLIES, AREAL_SECONDS, "paused, cache kept")
    desktop = [gain(arms, arm["series"], arm["value"]) for arm in arms if "desktop" in arm["series"]]
    waiting = "interrupted generation over waiting for the longest reply: tokens generated (7B)"
    here = f"{ours:+.0%} (8,000 tokens, {AREAL_SECONDS:g} s)"
    by_interval = f"{min(desktop):+.0%} to {max(desktop):+.0%} by time between syncs"
    return [
        _verdict("interrupt", waiting, "+17%", BLOG, here, abs(ours - 0.17) <= GAIN_POINTS),
        _verdict("interrupt", "the same with the cache kept", "no figure", "prime-rl, TRL", f"{kept:+.0%}"),
        _verdict("interrupt", "the same for desktops", "no figure", "–", by_interval),
    ]


def _staleness(arms: Sequence[Figures]) -> list[Figures]:
    made = []
    for series in dict.fromkeys(arm["series"] for arm in arms if arm["series"].endswith("by admission")):
        own = [arm for arm in arms if arm["series"] == series]
        trained = [mean(arm, "trained_turns_per_minute") for arm in own]
        ratio = mean(pick(arms, series, "4"), "trained_turns_per_minute") / trained[0]
        workload = series.split(",")[0]
        statement = f"`{workload}`: bound 4 over bound 0, trained turns"
        made.append(_verdict("staleness", statement, "about 2x", DOCS, f"{ratio:.2f}x", _near(ratio, 2.0)))
        rising = all(later > (1.0 + FLAT) * sooner for sooner, later in pairwise(trained))
        shown = ", ".join(f"{arm['name']}: {value:.0f}" for arm, value in zip(own, trained, strict=True))
        statement = f"`{workload}`: every larger bound trains faster, turns a minute"
        made.append(_verdict("staleness", statement, "rises with eta", BLOG, shown, rising))
        over = max(above(arm["staleness_histogram"], arm["value"]) for arm in own)
        statement = f"`{workload}`: admission alone holds the bound"
        share = f"{over:.1%} of turns above"
        made.append(_verdict("staleness", statement, "but for stragglers", "AReaL, its code", share, over <= FEW))
    return made


def above(histogram: Mapping[str, int], bound: float) -> float:
    """Return the share of trained turns that are older than a bound."""
    total = sum(histogram.values())
    return sum(number for age, number in histogram.items() if int(age) > bound) / total if total else 0.0


def _sync(arms: Sequence[Figures]) -> list[Figures]:
    made = []
    for workload in dict.fromkeys(arm["series"].split(",")[0] for arm in arms):
        rolling = pick(arms, f"{workload}, rolling restart", "300 s")
        at_once = pick(arms, f"{workload}, global restart", "300 s")
        stopped = f"{mean(rolling, 'stopped_share'):.0%} of desktop time against {mean(at_once, 'stopped_share'):.0%}"
        statement = f"`{workload}`: rollout goes on during a rolling sync, and stops during a global one (300 s)"
        holds = mean(rolling, "stopped_share") < 0.01 < mean(at_once, "stopped_share")
        made.append(_verdict("sync", statement, "drawn, no figure", PAGE, stopped, holds))
        ratios = (
            f"{mean(rolling, name) / mean(at_once, name) - 1.0:+.0%} {words}"
            for name, words in (("trained_turns_per_minute", "trained"), ("generated_turns_per_minute", "generated"))
        )
        statement = f"`{workload}`: rolling over global restart, 300 s: turns"
        made.append(_verdict("sync", statement, "no figure", PAGE, ", ".join(ratios), None))
    return made


def _desktops(arms: Sequence[Figures], knee: Mapping[str, Any]) -> list[Figures]:
    ten = mean(pick(arms, "DART", value=10), "gpu_utilization")
    known = _published("dart", "gpu_utilization")
    values = [arm for arm in arms if arm["series"] == "DART"]
    best = max(values, key=lambda arm: mean(arm, "trained_turns_per_minute"))
    each, free = knee["turns_per_minute_of_a_desktop"], "trainer and sync free"
    reached = {
        per_gpu: mean(pick(arms, free, value=per_gpu), "generated_turns_per_minute") / (4 * per_gpu * each)
        for per_gpu in (10, 20)
    }
    shares = ", ".join(f"{per_gpu}: {share:.0%}" for per_gpu, share in reached.items())
    busy = "ten desktops a GPU: rollout GPUs busy (the model was fitted to 38 on 4)"
    most = f"{best['name']} of {', '.join(arm['name'] for arm in values)}"
    bound = "closed-form knee, and what desktops reach of their own bound at 10 and 20 a GPU"
    knees = f"{knee['no_prefix_cached']} to {knee['all_prefixes_cached']}; {shares}"
    return [
        _verdict("desktops", busy, f"{known:.1%}", PAGE, f"{ten:.1%}", _near(ten, known)),
        _verdict(
            "desktops", "desktops a GPU at which DART trains most", "about 10 in every run", "DART, run names", most
        ),
        _verdict("desktops", bound, "no figure", "–", knees),
    ]
