"""One life of ``experiments.desktop_kills``: a control plane on real desktops that kills them at random.

    python -m experiments.desktop_life IMAGE FOLDER --seed 0 --kills 10

It says on standard output, as lines of JSON, what it has killed and which attempts have ended.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from dartsim.real.loop import RunLoop
from experiments.study import refusals_told


def main() -> None:
    """Live once."""
    about = str(__doc__).splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m experiments.desktop_life", description=about)
    parser.add_argument("image", help="of the desktops")
    parser.add_argument("folder", type=Path, help="where the database and downloads go")
    parser.add_argument("--seed", type=int, required=True, help="of what is killed, and when")
    parser.add_argument("--kills", type=int, required=True, help="desktops to kill")
    options = parser.parse_args()
    with refusals_told():
        # Imported here: the command line can be asked for help without the extra `real`.
        from experiments.desktop_kills import live

        with asyncio.Runner(loop_factory=RunLoop) as runner:
            runner.run(live(options.image, options.folder, seed=options.seed, kills=options.kills))


if __name__ == "__main__":
    main()
