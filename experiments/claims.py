"""The published claims of asynchronous training, each run on one simulator, and whether what comes out agrees.

python -m experiments.claims            three seeds: about eight minutes on two cores
python -m experiments.claims --quick    the same keys, fewer arms, in less than one
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from experiments.arms import Arm, arm_study, mean, pick, run_cluster, select
from experiments.charts import drawing, grouped, label_axes, legend_below, line
from experiments.headline import PUBLISHED
from experiments.study import Figures, Rows, StudyPicture, rows_of


def run_claim(arm: Arm, seed: int) -> Figures:
    """Run an arm; return its figures with those that claims ask for and no run writes.

    ``hybrid_gpus_utilization`` is for GPUs that train as well as answer: an update counts as busy throughout;
    ``all_gpus_utilization`` for rollout GPUs and the trainer's together, each its own share of busy time;
    ``stopped_share`` the share of desktop time spent waiting for a stopped pool; ``stale_share`` the share of
    attempts that were finished and dropped as too old; ``over_bound_share`` that of trained turns older than ``value``.
    """
    cluster = arm.cluster(seed)
    config, found = cluster.config, run_cluster(cluster)
    rollout, trainer = config.rollout.num_workers, config.cluster.learner.gpus
    busy, training = found["gpu_utilization"], found["trainer_shares"]["training"]
    ages = {int(age): number for age, number in found["staleness_histogram"].items()}
    over = sum(number for age, number in ages.items() if age > arm.keys.get("value", 0))
    return {
        **found,
        "training_share": training,
        "hybrid_gpus_utilization": busy + training,
        "all_gpus_utilization": (rollout * busy + trainer * training) / (rollout + trainer),
        "stopped_share": found["desktop_shares"]["sync_wait"],
        "stale_share": found["dropped"].get("stale", 0) / max(1, found["attempts"]),
        "over_bound_share": over / max(1, sum(ages.values())),
    }


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

PAGE, BLOG = "DART, project page", "AReaL, blog/AReaL_v0_3.md"
TRAINED = "trained_turns_per_minute"


def verdicts(arms: Sequence[Figures]) -> list[Figures]:
    """Return every published statement, ours and whether they agree; None: that cannot be judged."""
    found = [*_table(arms), *_interrupt(arms), *_staleness(arms), *_sync(arms), *_desktops(arms)]
    return [dict(zip(("statement", "published", "source", "ours", "agrees"), row, strict=True)) for row in found]


Verdict = tuple[str, str, str, str, bool | None]
"""Statement, what was published, where, what we found, and whether it agrees."""


def _near(ours: float, known: float) -> bool:
    return abs(ours / known - 1.0) <= BAND


def _ends(arms: Sequence[Figures]) -> tuple[Figures, Figures]:
    """Return the coupled baseline and DART."""
    return pick(arms, family="ladder", arm="coupled"), pick(arms, family="left out", arm="DART")


def _table(arms: Sequence[Figures]) -> list[Verdict]:
    coupled, dart = _ends(arms)
    words = {
        TRAINED: "trained turns",
        "env_utilization": "environment utilization",
        "gpu_utilization": "utilization of rollout GPUs, all the time",
    }
    made: list[Verdict] = []
    for name, what in words.items():
        known = PUBLISHED["dart"][name] / PUBLISHED["coupled"][name]
        ours = mean(dart, name) / mean(coupled, name)
        made.append((f"DART over coupled: {what}", f"{known:.2f}x", PAGE, f"{ours:.2f}x", _near(ours, known)))
    return made


def _interrupt(arms: Sequence[Figures]) -> list[Verdict]:
    ours, waited = (
        mean(pick(arms, family="interrupt", series=AREAL_REPLIES, value=AREAL_SECONDS, arm=mode), "gpu_peak_share")
        for mode in ("interrupted, cache lost", "waited for")
    )
    gain = ours / waited - 1.0
    statement = "interrupted generation over waiting for the longest reply: tokens generated (7B)"
    here = f"{gain:+.0%} (8,000 tokens, {AREAL_SECONDS:g} s)"
    return [(statement, "+17%", BLOG, here, abs(gain - 0.17) <= GAIN_POINTS)]


def _staleness(arms: Sequence[Figures]) -> list[Verdict]:
    made: list[Verdict] = []
    for workload, own in grouped(select(arms, family="staleness"), "workload").items():
        admitted = select(own, series=f"{workload}, by admission")
        trained = {arm["value"]: mean(arm, TRAINED) for arm in admitted}
        ratio = trained[4] / trained[0]
        statement = f"`{workload}`: bound 4 over bound 0, trained turns"
        source = "AReaL, docs: asynchronous RL"
        made.append((statement, "about 2x", source, f"{ratio:.2f}x", _near(ratio, 2.0)))
        rising = all(later > (1.0 + FLAT) * sooner for sooner, later in pairwise(trained.values()))
        shown = ", ".join(f"{bound}: {turns:.0f}" for bound, turns in trained.items())
        statement = f"`{workload}`: every larger bound trains faster, turns a minute"
        made.append((statement, "rises with eta", BLOG, shown, rising))
        over = max(mean(arm, "over_bound_share") for arm in admitted)
        statement = f"`{workload}`: admission alone holds the bound"
        made.append((statement, "but for stragglers", "AReaL, its code", f"{over:.1%} of turns above", over <= FEW))
    return made


def _sync(arms: Sequence[Figures]) -> list[Verdict]:
    made: list[Verdict] = []
    for workload, own in grouped(select(arms, family="sync", value=300.0), "workload").items():
        rolling, at_once = (
            mean(pick(own, series=f"{workload}, {scope} restart"), "stopped_share") for scope in ("rolling", "global")
        )
        statement = f"`{workload}`: rollout goes on during a rolling sync, and stops during a global one (300 s)"
        shown = f"{rolling:.0%} of desktop time against {at_once:.0%}"
        made.append((statement, "drawn, no figure", PAGE, shown, rolling < 0.01 < at_once))
    return made


def _desktops(arms: Sequence[Figures]) -> list[Verdict]:
    own = select(arms, family="desktops")
    ten, known = mean(pick(own, value=10), "gpu_utilization"), PUBLISHED["dart"]["gpu_utilization"]
    best = max(own, key=lambda arm: mean(arm, TRAINED))
    busy = "ten desktops a GPU: rollout GPUs busy (the model was fitted to 38 on 4)"
    most = f"{best['value']} of {', '.join(str(arm['value']) for arm in own)}"
    return [
        (busy, f"{known:.1%}", PAGE, f"{ten:.1%}", _near(ten, known)),
        ("desktops a GPU at which DART trains most", "about 10 in every run", "DART, run names", most, None),
    ]


def verdict_rows(recorded: Figures) -> Rows:
    """Every claim with a published figure: its source, ours, whether they agree."""
    words = {True: "yes", False: "**no**", None: "–"}
    columns = {
        "statement": "{statement}",
        "published": "{published}",
        "source": "{source}",
        "here": "{ours}",
        "agrees": "{agrees}",
    }
    return rows_of(columns, ({**row, "agrees": words[row["agrees"]]} for row in verdicts(recorded["arms"])))


def definition_rows(recorded: Figures) -> Rows:
    """Utilization of GPUs of coupled and DART, and its ratio, under every definition."""
    coupled, dart = _ends(recorded["arms"])
    rollout, both = "gpu_utilization", "all_gpus_utilization"
    published = PUBLISHED["coupled"][rollout]
    fitted = (published - mean(coupled, rollout)) / mean(coupled, "training_share")
    hybrid, throughout = mean(coupled, "hybrid_gpus_utilization"), "coupled on hybrid GPUs, an update busy throughout"
    found = {
        "as published": (published, PUBLISHED["dart"][rollout]),
        "rollout GPUs, all the time": (mean(coupled, rollout), mean(dart, rollout)),
        "rollout GPUs, while attempts run": tuple(mean(arm, f"{rollout}_rollout_phase") for arm in (coupled, dart)),
        "rollout GPUs, share of the peak token rate": tuple(mean(arm, "gpu_peak_share") for arm in (coupled, dart)),
        "rollout and trainer GPUs apart, all of them": (mean(coupled, both), mean(dart, both)),
        f"{throughout}; DART's rollout GPUs": (hybrid, mean(dart, rollout)),
        f"{throughout}; all of DART's GPUs": (hybrid, mean(dart, both)),
        f"coupled on hybrid GPUs, {fitted:.0%} of an update busy (fitted); DART's rollout GPUs": (
            published,
            mean(dart, rollout),
        ),
    }
    columns = {"definition": "{definition}", "coupled": "{coupled:.1%}", "DART": "{dart:.1%}", "ratio": "{ratio:.2f}x"}
    return rows_of(
        columns, ({"definition": words, "coupled": a, "dart": b, "ratio": b / a} for words, (a, b) in found.items())
    )


def ladder_rows(claims: Figures) -> Rows:
    """Three figures on every rung of the ladder and without each part."""
    columns = {
        "parts": "{arm}",
        "trained turns/min": "{figures[trained_turns_per_minute]:.1f}",
        "environment utilization": "{figures[env_utilization]:.1%}",
        "rollout GPUs busy": "{figures[gpu_utilization]:.1%}",
    }
    families = ("ladder", "left out")
    return rows_of(columns, [arm for family in families for arm in select(claims["arms"], family=family)])


@drawing(2.7)
def staleness(figure: Any, claims: Figures) -> None:
    """Throughput, measured staleness and dropped work by staleness bound."""
    panels = {
        TRAINED: ("Throughput", "trained turns per minute", 1.0),
        "staleness_mean": ("Measured staleness", "versions, mean", 1.0),
        "stale_share": ("Dropped as too stale", "% of attempts", 100.0),
    }
    for axes, (name, (title, unit, scale)) in zip(figure.subplots(1, 3), panels.items(), strict=True):
        for number, (series, own) in enumerate(grouped(select(claims["arms"], family="staleness")).items()):
            line(axes, own, name, number, series, scale)
        axes.set_xticks([0, 1, 2, 4, 8])
        label_axes(axes, title, "staleness bound, versions", unit)
    legend_below(figure)


STUDY = arm_study(
    "claims",
    tables={"claims-verdicts": verdict_rows, "claims-gpus": definition_rows, "claims-table": ladder_rows},
    pictures={
        "claims-staleness": StudyPicture(
            "Throughput, measured staleness and dropped work by staleness bound, for admission and dropping", staleness
        ),
    },
    run=run_claim,
)

if __name__ == "__main__":
    STUDY.run()
