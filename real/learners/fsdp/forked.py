"""torchrun whose ranks are forks: ``python -m dartsim.real.learners.fsdp.forked OPTIONS FOLDER``.

torch and transformers are imported once on a machine, before there are ranks, not once by each (4 s of a core), and the
ranks share that memory. Not for GPUs: a fork of a process that has asked CUDA anything cannot use it.
"""

from __future__ import annotations

import sys

from torch.distributed.run import parse_args, run

from dartsim.real.learners.fsdp import rank


def main(arguments: list[str]) -> None:
    """Start ranks and stay until they have ended.

    Args:
        arguments: Options of torchrun, and the folder of what the ranks read at their start.
    """
    *options, folder = arguments
    # Every rank runs the file as a program, as torchrun's would; what it imports is there already.
    forking = ("--start-method=fork", "--run-path", str(rank.__file__))
    run(parse_args([*options, *forking, folder]))  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main(sys.argv[1:])
