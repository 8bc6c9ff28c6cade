"""What scoring in sandboxes costs, and what hostile answers do to it: ``python -m experiments.scoring``.

Throughput is that of desktops which score one attempt after the other without a pause, so that a score's latency is
mostly waiting: the worst case, a queue as long as there are desktops. Beside it desktops that score once in
``PACE_SECONDS``, each at a moment of its own, as attempts end. A score includes the archive of its inputs.

A task that wants to run every millisecond watches the event loop: its longest pause by the clock, and the longest that
the loop's thread computed in between, which other processes do not lengthen.
"""

from __future__ import annotations

import asyncio
import io
import tarfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from dartsim.real.scoring import FileInput, SandboxPool, ScoreFault
from dartsim.real.scoring.archive import ScoreArchive
from dartsim.real.scoring.container import open_pool
from dartsim.real.scoring.evaluator_venv import default_home
from dartsim.real.scoring.sandbox import ScoreLimits
from dartsim.real.scoring.sandboxed.own_functions import exact_match
from experiments.study import Experiment, Figures, Options, Rows, rows_of, short_commit

DESKTOPS = (38, 180)
PACE_SECONDS = 20.0
BEAT_SECONDS = 0.001
LIMITS = ScoreLimits(metric_seconds=20.0, cpu_seconds=5, memory_mib=512, scratch_mib=128)

Call = tuple[str, Sequence[Any], Mapping[str, Any]]


def measure(options: Options) -> Figures:
    """Return the figures."""
    home = default_home()
    return asyncio.run(measure_pool(home if home.is_dir() else None, rounds=2 if options.quick else 10))


async def measure_pool(home: Path | None, *, rounds: int) -> Figures:
    """Return the figures of sandboxes."""
    with TemporaryDirectory(prefix="dartsim-scoring-") as name:
        folder = Path(name)
        async with open_pool(home, limits=LIMITS) as pool:
            await pool.warm()
            facts = await pool.facts()
            scorer = _Scorer(pool, ScoreArchive(folder / "scores"))
            calm = [call for call in ordinary(folder) if call[0] in facts.metrics]
            loads = {str(num): await _load(scorer, calm, num, rounds) for num in DESKTOPS}
            paced = {str(num): await _paced(scorer, calm, num) for num in DESKTOPS}
            overhead = await _overhead(scorer, 25 * rounds)
            hostile = [call for call in hostile_calls(folder) if call[0] in facts.metrics]
            async with _Heartbeat() as beat:
                forged, late = await _under_attack(scorer, hostile, calm)
            escaped = sum(path.exists() for path in escapes(folder))
        return {
            "scores_per_second": {num: load["scores_per_second"] for num, load in loads.items()},
            "p95_seconds": {num: load["p95_seconds"] for num, load in loads.items()},
            "p95_paced_seconds": paced,
            "overhead_seconds_p50": overhead,
            "longest_loop_pause_ms": 1e3 * beat.pause_seconds,
            "longest_loop_busy_ms": 1e3 * beat.busy_seconds,
            "hostile_cases": len(hostile),
            "escaped": escaped,
            "forged": forged,
            "p95_under_attack_seconds": late,
            "config": {
                "scorer": facts.scorer,
                "sandboxes": pool.size,
                "rounds": rounds,
            },
        }


def ordinary(folder: Path) -> list[Call]:
    """Return scores as honest agents ask for them."""
    result, gold = _file(folder, "result.txt", b"a line of text\n" * 500), _file(folder, "gold.txt", b"a line\n" * 500)
    return [
        ("exact_match", ["45288", {"expected": "45288"}], {}),
        ("compare_text_file", [result, gold], {"ignore_blanks": True}),
        ("check_list", [result, {"expect": ["^a line", "text$"]}], {}),
        ("file_contains", [result, {"expected": ["of text"]}], {}),
        ("check_include_exclude", ["notes.txt - Mousepad\n" * 50, {"include": ["notes"], "exclude": ["gal"]}], {}),
    ]


def escapes(folder: Path) -> list[Path]:
    """Return what hostile calls try to write outside of their sandbox."""
    return [folder / "escaped", Path("/tmp/dartsim-escaped"), Path("/var/tmp/dartsim-escaped")]


def hostile_calls(folder: Path) -> list[Call]:
    """Return scores of answers, and options of task files, that attack the scorer."""
    out = [str(path) for path in escapes(folder)]
    code = (
        "import os, struct\n"
        f"for path in {out!r}:\n    try:\n        open(path, 'w').close()\n    except OSError:\n        pass\n"
        "if os.fork() == 0:\n    os.setsid()\n    while True:\n        pass\n"
        "def test():\n    return False\n"
    )
    deep = "[" * 100_000 + "]" * 100_000
    tree = "".join(f"<a{number}>" for number in range(20_000))
    sheet = _file(folder, "bomb.xlsx", _zipped({"xl/workbook.xml": bytes(2**28), "[Content_Types].xml": b"x"}))
    archive = _file(folder, "evil.tar", _tarred({f"../../../..{out[1]}": b"x", out[2]: b"x"}, link=out[0]))
    database = _file(folder, "data.db", b"")
    lines = _file(folder, "lines.txt", b"a" * 34 + b"!\n")
    large = _file(folder, "large.txt", b"a b\n" * 2**24)
    gold = _file(folder, "expected.txt", b"a b\n")
    deep_file, suite = _file(folder, "deep.json", deep.encode()), _file(folder, "suite.py", code.encode())
    return [
        ("check_list", [lines, {"expect": ["^(a+)+$"]}], {}),
        ("fuzzy_match", ["ab" * 200_000, {"expected": "ba" * 200_000}], {}),
        ("compare_text_file", [large, gold], {"ignore_blanks": True}),
        ("diff_text_file", [large, gold], {}),
        ("compare_table", [sheet, sheet], {"rules": [{"type": "sheet_data", "sheet_idx0": 0, "sheet_idx1": "EI0"}]}),
        ("compare_archive", [archive, archive], {"file_path": "x", "file_type": "text"}),
        ("run_sqlite3", [database, {"sql": f"ATTACH '{out[1]}' AS other"}], {}),
        ("run_sqlite3", [database, {"sql": f"VACUUM INTO '{out[2]}'"}], {}),
        (
            "check_json",
            [deep_file, {"expect": [{"key": ["a"], "method": "eq", "ref": 1}]}],
            {},
        ),
        ("check_direct_json_object", [deep, {"expected": {"a": 1}}], {}),
        ("check_accessibility_tree", [tree, [{"xpath": "//a0"}]], {}),
        ("exact_match", ["x" * 2**25, {"expected": "y"}], {}),
        (
            "check_python_file_by_test_suite",
            [[], suite],
            {"test_function_name": "test"},
        ),
    ]


@dataclass(frozen=True)
class _Scorer:
    """Scores and keeps the inputs, as ``real.osworld.scorer`` does."""

    pool: SandboxPool
    archive: ScoreArchive

    async def score(self, call: Call) -> tuple[float, float]:
        name, arguments, options = call
        began = time.perf_counter()
        score = await self.pool.run(lambda sandbox: sandbox.metric(name, arguments, options))
        await asyncio.to_thread(self.archive.keep, name, arguments, options)
        return score, time.perf_counter() - began


async def _load(scorer: _Scorer, calls: Sequence[Call], num_desktops: int, rounds: int) -> dict[str, float]:
    latencies: list[float] = []

    async def desktop(number: int) -> None:
        for turn in range(rounds):
            _, seconds = await scorer.score(calls[(number + turn) % len(calls)])
            latencies.append(seconds)

    began = time.perf_counter()
    await asyncio.gather(*map(desktop, range(num_desktops)))
    return {
        "scores_per_second": len(latencies) / (time.perf_counter() - began),
        "p95_seconds": _quantile(latencies, 0.95),
    }


async def _paced(scorer: _Scorer, calls: Sequence[Call], num_desktops: int) -> float:
    """Return the 95th percentile of the latency, seconds, where each desktop scores once in ``PACE_SECONDS``."""
    moments = np.random.default_rng(0).uniform(0.0, PACE_SECONDS, num_desktops)

    async def desktop(number: int) -> float:
        await asyncio.sleep(moments[number])
        return (await scorer.score(calls[number % len(calls)]))[1]

    return _quantile(await asyncio.gather(*map(desktop, range(num_desktops))), 0.95)


async def _overhead(scorer: _Scorer, repeats: int) -> float:
    """Return what the median score takes longer in a sandbox than as a direct call."""
    arguments: tuple[str, dict[str, str]] = ("45288", {"expected": "45288"})
    inside, direct = [], []
    for _ in range(repeats):
        inside.append((await scorer.score(("exact_match", arguments, {})))[1])
        began = time.perf_counter()
        exact_match(*arguments)
        direct.append(time.perf_counter() - began)
    return _quantile(inside, 0.5) - _quantile(direct, 0.5)


async def _under_attack(scorer: _Scorer, hostile: Sequence[Call], calm: Sequence[Call]) -> tuple[int, float]:
    """Score every hostile answer, and honest ones beside them; return how many forged a score, and the honest p95."""
    forged, latencies, done = 0, [], asyncio.Event()

    async def attack(call: Call) -> None:
        nonlocal forged
        with suppress(ScoreFault):
            forged += (await scorer.score(call))[0] > 0.0

    async def honest() -> None:
        while not done.is_set():
            for call in calm:
                _, seconds = await scorer.score(call)
                latencies.append(seconds)

    beside = asyncio.create_task(honest())
    await asyncio.gather(*map(attack, hostile))
    done.set()
    await beside
    return forged, _quantile(latencies, 0.95)


class _Heartbeat:
    """Finds the longest pause of the event loop, by the clock and by its thread's processor time."""

    def __init__(self) -> None:
        self.pause_seconds = self.busy_seconds = 0.0

    async def __aenter__(self) -> _Heartbeat:
        self._task = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._task.cancel()

    async def _beat(self) -> None:
        while True:
            now, busy = time.perf_counter(), time.thread_time()
            await asyncio.sleep(BEAT_SECONDS)
            self.pause_seconds = max(self.pause_seconds, time.perf_counter() - now - BEAT_SECONDS)
            self.busy_seconds = max(self.busy_seconds, time.thread_time() - busy)


def _file(folder: Path, name: str, content: bytes) -> FileInput:
    path = folder / name
    path.write_bytes(content)
    return FileInput(path, name)


def _zipped(members: Mapping[str, bytes]) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return data.getvalue()


def _tarred(members: Mapping[str, bytes], *, link: str) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        leads_out = tarfile.TarInfo("x")
        leads_out.type, leads_out.linkname = tarfile.SYMTYPE, link
        archive.addfile(leads_out)
        for name, content in {**members, "x": b"x"}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return data.getvalue()


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def attack_table(figures: Figures) -> Rows:
    """Return what hostile answers did."""
    columns = {
        "hostile scores": "{hostile_cases}",
        "files written outside": "{escaped}",
        "scored above 0": "{forged}",
        "longest pause of the event loop, ms": "{longest_loop_pause_ms:.0f}",
        "p95 of other scores meanwhile, s": "{p95_under_attack_seconds:.2f}",
    }
    return rows_of(columns, [figures])


def scoring_found(figures: Figures) -> str:
    """Say in one sentence how fast scores are."""
    rates = ", ".join(f"{rate:.0f} with {num} desktops" for num, rate in figures["scores_per_second"].items())
    paced = 1e3 * max(figures["p95_paced_seconds"].values())
    return (
        f"Scores per second: {rates}; a sandbox adds {1e3 * figures['overhead_seconds_p50']:.0f} ms to each. If a "
        f"desktop scores once in {PACE_SECONDS:.0f} s, 95 % take at most {paced:.0f} ms "
        f"(`python -m experiments.scoring`, commit {short_commit(figures)}).\n"
    )


STUDY = Experiment(
    name="scoring",
    about="Scores per second in sandboxes, their overhead, and what hostile answers do.",
    measure=measure,
    tables={"scoring-attack": attack_table, "scoring-found": scoring_found},
    seeds=1,
)

if __name__ == "__main__":
    STUDY.run()
