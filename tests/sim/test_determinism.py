"""Same seed, same run: in one process, in two, and whatever the addresses and the hash seed are."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import simpy

from dartsim.sim import run_virtual_reported, wait
from dartsim.sim.perturb import Perturbation
from dartsim.sim.tasks import Node

ROOT = Path(__file__).resolve().parents[2]


async def small_cluster():
    """Everything that could go another way: sets of tasks, cancellation, chance, SimPy, notes."""
    loop = asyncio.get_running_loop()
    rng, engine, log = loop.rng("desktops"), simpy.Resource(loop.env, capacity=2), []

    async def desktop(number):
        for turn in range(6):
            await asyncio.sleep(rng.exponential(2.0))
            with engine.request() as request:
                await wait(request)
                await wait(loop.env.timeout(loop.env.delay(0.5)))
            log.append((number, turn))
            loop.note(number, turn)
        if number == 5:
            raise LookupError

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(12):
                with Node(str(number)):
                    group.create_task(_noting_its_end(desktop(number), number, log))
    except* LookupError:
        pass
    done, _ = await asyncio.wait([asyncio.create_task(asyncio.sleep(1, number)) for number in range(20)])
    log += [task.result() for task in done]
    log += [task.get_name() for task in asyncio.all_tasks()]
    return log


async def _noting_its_end(coroutine, number, log):
    try:
        await coroutine
    finally:
        log.append(("ended", number))


def without_counters(log):
    return [entry for entry in log if not isinstance(entry, str)]


def test_one_seed_makes_one_run_in_one_process():
    runs = []
    rubbish = []
    for size in range(10):
        rubbish.append([object() for _ in range(size * 37)])  # moves the addresses of what is made next
        log, report = run_virtual_reported(small_cluster(), seed=4)
        runs.append((without_counters(log), report))
    assert all(run == runs[0] for run in runs)


def test_one_seed_makes_one_run_in_processes_with_other_hash_seeds():
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from dartsim.sim import run_virtual_reported\n"
        "from dartsim.sim.perturb import Perturbation\n"
        "from test_determinism import small_cluster, without_counters\n"
        "for perturb in (None, Perturbation(latency_share=0.3)):\n"
        "    log, report = run_virtual_reported(small_cluster(), seed=4, perturb=perturb)\n"
        "    print(without_counters(log), report)\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
        ).stdout
        for hash_seed in ("1", "2", "random")
    }
    assert len(outputs) == 1
    plain, perturbed = outputs.pop().splitlines()
    assert plain != perturbed
    log, report = run_virtual_reported(small_cluster(), seed=4)
    assert plain == f"{without_counters(log)} {report}"
    log, report = run_virtual_reported(small_cluster(), seed=4, perturb=Perturbation(latency_share=0.3))
    assert perturbed == f"{without_counters(log)} {report}"


async def one_sleep(*delays, note=()):
    for delay in delays:
        await asyncio.sleep(delay)
    asyncio.get_running_loop().note(*note)


def hash_of(coroutine):
    report = run_virtual_reported(coroutine)[1]
    assert len(report.event_hash) == 16
    int(report.event_hash, 16)
    return report.event_hash


def test_the_hash_tells_times_counts_and_notes_apart():
    async def two_at_once():
        await asyncio.gather(asyncio.sleep(1), asyncio.sleep(1))

    hashes = [
        hash_of(one_sleep(1)),
        hash_of(one_sleep(2)),
        hash_of(one_sleep(1, 1)),
        hash_of(one_sleep(0.5, 1.5)),
        hash_of(one_sleep(1, note=(1, 2))),
        hash_of(one_sleep(1, note=(2, 1))),
        hash_of(two_at_once()),
    ]
    assert len(set(hashes)) == len(hashes)
    assert hash_of(one_sleep(1, note=(1, 2))) == hashes[4]
