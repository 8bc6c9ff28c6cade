"""Latencies of desktops: named profiles, every number with its source.

A desktop's life: start under the host's start lock (``start``), boot outside it (``boot``), and for every attempt a
set-up, steps and an evaluation; then teardown. If a desktop serves only one attempt (``fresh_per_attempt``), a second
``reset`` first tears it down and boots it again, as OSWorld's own ``DesktopEnv.reset`` does in Docker. Numbers are
marked *measured* by the named source or *chosen* by us, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from dartsim.core.errors import ConfigError
from dartsim.sim.latency import ZERO, Capped, Constant, Gamma, Latency, Lognormal, Quantiles, Sum

SAVEVM, LOADVM = Constant(1.2), Constant(0.8)
"""QEMU's save and restore of a Debian desktop of 1.5 GB without KVM (measured, n = 1)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvTiming:
    """Latencies of a desktop on a host with idle cores, and the resources it occupies.

    Attributes:
        start: Part of a boot under the host's start lock.
        boot: Rest of a boot, until the desktop answers.
        setup: Reset work between a booted desktop and an attempt's first observation.
        step: One action: carried out, settled, observed.
        evaluate: Scoring, post-configuration included.
        teardown: Stop and removal.
        memory_gib: Memory held from start to the end of teardown.
        boot_cores: Cores kept busy by start, boot and set-up, on average.
        step_cores: Cores kept busy by a step or an evaluation, on average.
        settle_seconds: Fixed sleep after every set-up (60 in OSWorld's runners); idle.
        evaluate_settle_seconds: Fixed sleep before every evaluation (20 in OSWorld's runners); idle.
        fresh_per_attempt: A reset of a used desktop tears it down and boots it again first.
        save: Saving the state (desktop.revert = "snapshot" or "fork").
        restore: Returning to it.
        snapshot_mib: Size of a saved state on its host: 375 when ``SAVEVM`` was measured.
        restore_failures: Share of restores that fail, after which the desktop boots; 0 is chosen.
    """

    start: Latency = ZERO
    boot: Latency = ZERO
    setup: Latency = ZERO
    step: Latency = ZERO
    evaluate: Latency = ZERO
    teardown: Latency = ZERO
    memory_gib: float = 0.0
    boot_cores: float = 0.0
    step_cores: float = 0.0
    settle_seconds: float = 0.0
    evaluate_settle_seconds: float = 0.0
    fresh_per_attempt: bool = True
    save: Latency = SAVEVM
    restore: Latency = LOADVM
    snapshot_mib: float = 375.0
    restore_failures: float = 0.0

    def __post_init__(self) -> None:
        for name in NUMBERS:
            if not getattr(self, name) >= 0:
                raise ConfigError(f"env timing: {name} must be >= 0, got {getattr(self, name)}")


LATENCIES = tuple(field.name for field in fields(EnvTiming) if field.type == "Latency")
"""Latencies that ``cluster.env.latency`` may replace."""

NUMBERS = tuple(field.name for field in fields(EnvTiming) if field.type == "float")
"""Other numbers of a profile that ``cluster.env.latency`` may replace."""

DART = EnvTiming(
    # DART's released logs: 2 / 4 / 8 / 12 boots at once took 12.5 / 13.2 / 16.0 / 18.9 s (measured). The
    # straight line through them is 10.9 s + 0.66 s a boot (largest residual 0.3 s): a serialized start of
    # 0.66 s and the rest in parallel. Start + boot + teardown have the mean of 22 s (range 9-30) that closes
    # the measured 173 s a trajectory.
    start=Constant(0.66),
    # Spread chosen: OSWorld's three quiet boots range over ±5 % (27.6-30.6 s); 10 % for a busy cluster.
    boot=Lognormal(11.84, 1.2),
    # Offset of the line through DART's episode times: 18-35 s (measured; 30 s closes the trajectory time).
    # Spread chosen: 18-35 s holds the middle 90 %.
    setup=Lognormal(30.0, 4.3),
    # Fixed pause of 2-5 s (measured) + action + screenshot; 5.3 s closes the trajectory time. Spread chosen:
    # gamma with k = 16, the wider of the jitters (16-30) that close the coupled baseline's iteration time.
    step=Gamma(5.3, 16.0),
    # 6 s, range 2-15 (inferred, no figure is published); spread chosen so that 2-15 s holds 98 %.
    evaluate=Lognormal(6.0, 2.5),
    # 8.6-10.5 s: container stop, then a fixed 3 s wait (DART's released logs, measured).
    teardown=Quantiles(((0.0, 8.6), (0.5, 9.4), (1.0, 10.5))),
    memory_gib=2.0,  # DART's VMs have 2 cores and 2 GB (its released configuration)
    boot_cores=1.0,  # chosen: half of the VM's 2 cores, a booting desktop being partly disk-bound
    # Chosen: about 0.4 s of real work in a step (see OSWORLD), on two cores at most, over 5.3 s.
    step_cores=0.15,
)
"""DART's desktops (arXiv 2509.23866), from its released logs and code where they say."""


OSWORLD = EnvTiming(
    # OSWorld holds its port lock over port choice and `containers.run` (its source); how long is not
    # published: chosen as in DART's fit. Start + boot + set-up = 27.6 / 29.9 / 30.6 s on a quiet host of 384
    # cores (boot + reset, n = 3, cua-lite's published footprint.json): mean 29.4, sd 1.6 s.
    start=Constant(0.66),
    boot=Lognormal(25.3, 1.5),
    # OSWorld's client and server, no download: 3.4 s with Calc, 1.07 s with one launch (measured).
    setup=Lognormal(3.4, 1.5),
    # Our fit of 67,458 real turns in Docker VMs (cua-lite's published results.json): p10 2.39, p50 2.53, p90
    # 4.10, mean 3.25, sd 3.19 s against the measured 2.40 / 2.53 / 4.38 / 3.24 / 3.15.
    step=Sum((Constant(2.38), Capped(Lognormal.from_median(0.15, 1.9), 60.0))),
    # No distribution is published. The task files declare sleeps before the check with mean 0.8 s and maximum
    # 20 s (counted), compare_table takes 2.6-2.8 s end to end (measured): their sum; the tail is chosen.
    evaluate=Sum((Constant(2.7), Capped(Lognormal(0.8, 1.5), 20.0))),
    # The same code as DART's: stop, remove, 3 s of sleep.
    teardown=Quantiles(((0.0, 8.6), (0.5, 9.4), (1.0, 10.5))),
    memory_gib=4.2,  # 4,124-4,413 MiB resident with RAM_SIZE 4G (cua-lite's footprint.json)
    boot_cores=2.0,  # chosen: half of CPU_CORES 4; idle VMs already spike to 200-380 % (cua-lite)
    # Chosen: 0.4 s of real work on two cores in a 3.25 s step (a settle of about 2 s is most of its floor of
    # 2.4 s), plus the 4-8 % of a core that an idle VM takes (cua-lite).
    step_cores=0.3,
)
"""OSWorld in Docker with KVM, one fresh container an attempt, without the runners' fixed sleeps.

``dataclasses.replace(OSWORLD, settle_seconds=60, evaluate_settle_seconds=20)`` is what its runners do.
"""


DESKTOP_SMALL = EnvTiming(
    # All measured on two shared cores. Small container image, mousepad: `docker run` to the first screenshot
    # 0.74-1.36 s, 1.8 s under load, at 0.75 CPU seconds; the share of the engine's own start is chosen.
    start=Constant(0.2),
    boot=Quantiles(((0.0, 0.54), (0.5, 0.7), (0.9, 1.16), (1.0, 1.6))),
    # Kill the process group, fresh HOME, launch: below 1 s to about 3 s (inferred).
    setup=Quantiles(((0.0, 0.5), (0.5, 1.0), (1.0, 3.0))),
    # Bare Xvfb, a fresh interpreter an action: click p50 0.306, p95 0.371 s, the slowest hotkey 0.81 s;
    # screenshot p50 0.038, p95 0.077, max 0.081 s.
    step=Sum(
        (
            Quantiles(((0.0, 0.22), (0.5, 0.306), (0.95, 0.371), (1.0, 0.81))),
            Quantiles(((0.0, 0.03), (0.5, 0.038), (0.95, 0.077), (1.0, 0.081))),
        )
    ),
    # compare_table 2.6-2.8 s end to end; simpler checks take less (chosen).
    evaluate=Quantiles(((0.0, 0.2), (0.5, 1.0), (1.0, 2.8))),
    teardown=Quantiles(((0.0, 0.14), (0.5, 0.17), (0.95, 0.19), (1.0, 0.4))),  # removal of the container
    memory_gib=0.4,  # LibreOffice Calc: PSS 368-426 MB each (mousepad 181 MB)
    boot_cores=0.8,  # 0.75 CPU seconds in about 0.95 s
    # 87 ms of CPU for a click by a fresh interpreter and 32 ms for a screenshot, in 0.36 s.
    step_cores=0.33,
    fresh_per_attempt=False,
)
"""A bare X desktop (Xvfb, a window manager, one application) behind a small server, in a small image."""


DESKTOP_APPS = EnvTiming(
    # The container engine's own part of 118 starts (measured).
    start=Constant(0.43),
    # With the start 1.45 s, p95 1.78 s: ten starts on idle cores, `experiments.osworld_apps` (measured).
    boot=Quantiles(((0.0, 0.8), (0.5, 1.02), (0.95, 1.35), (1.0, 1.6))),
    # The rest is measured in a run of 117 attempts at twelve tasks of OSWorld, `experiments.apps_training`: four
    # desktops, engine and learner on two cores. Of the set-ups, the slow tenth starts GIMP or Chrome.
    setup=Quantiles(((0.0, 0.95), (0.5, 1.69), (0.9, 5.8), (0.95, 8.35), (1.0, 13.1))),
    step=Quantiles(((0.0, 0.02), (0.1, 0.18), (0.5, 0.37), (0.9, 0.94), (0.99, 1.61), (1.0, 1.82))),
    evaluate=Quantiles(((0.0, 0.04), (0.5, 0.18), (0.9, 0.65), (0.99, 1.1), (1.0, 1.35))),
    teardown=Quantiles(((0.0, 0.16), (0.5, 0.33), (0.95, 0.67), (1.0, 1.0))),
    memory_gib=0.8,  # 771 MiB with eight applications open (measured)
    boot_cores=1.0,  # chosen: an Xvfb, a panel and an application that start
    step_cores=0.33,  # as in DESKTOP_SMALL: the same server
)
"""A container of the image ``apps``, without KVM: OSWorld's applications from Debian."""


PROFILES: dict[str, EnvTiming] = {
    "dart": DART,
    "osworld": OSWORLD,
    "desktop-small": DESKTOP_SMALL,
    "desktop-apps": DESKTOP_APPS,
}
"""The profiles by the name a configuration uses."""
