"""torchrun whose ranks are forks: ``python -m dartsim.real.learners.fsdp.forked OPTIONS FOLDER``.

torch and transformers are imported once per machine, not once per rank (4 s of a core), and the ranks share that
memory. Not for GPUs, because a fork of a process that has used CUDA cannot use it.
"""

from __future__ import annotations

import sys

from torch.distributed.run import parse_args, run

from dartsim.real.learners.fsdp import rank


def main(arguments: list[str]) -> None:
    """Start ranks with torchrun's options and the folder of their setup, and wait until they have ended."""
    *options, folder = arguments
    # Every rank runs the file as a program, as under torchrun; its imports are loaded already.
    forking = ("--start-method=fork", "--run-path", str(rank.__file__))
    run(parse_args([*options, *forking, folder]))  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main(sys.argv[1:])
