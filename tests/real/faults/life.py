"""One life of the cluster in a process of its own, to be killed from outside.

``python life.py IMAGE FOLDER`` prints a line for its owner and for every attempt that ended and was stored, and lives
on until it is killed.
"""

import argparse
import asyncio
import json
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from rig import Plan, Rig, RunLoop

from dartsim.store.sql import SqlStore


def tell(**what):
    print(json.dumps(what), flush=True)


async def main(options):
    store = SqlStore.open(options.folder, durable=True)
    await Rig(Plan(options.image, seconds=600.0, store=store, enough=told)).run()


def told(rig):
    trajectory = rig.trajectories[-1]
    attempt = trajectory.attempt.id
    what = {"slot": rig.slots.get(attempt), "reward": trajectory.reward, "cause": trajectory.cause}
    # Soon: listeners hear of an attempt just before it is stored.
    asyncio.get_running_loop().call_soon(partial(tell, owner=rig.owner, attempt=attempt, **what))
    return False


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("image")
    parser.add_argument("folder", type=Path)
    with asyncio.Runner(loop_factory=RunLoop) as runner:
        runner.run(main(parser.parse_args()))
