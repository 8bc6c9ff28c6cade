"""``dartsim new``: a file with your own cluster, from a few numbers."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from dartsim.cli.console import out

QUESTIONS = {
    "gpus": "GPUs, for engines and trainer together",
    "desktops": "Desktops",
    "hosts": "Machines for desktops (COUNTxMEMORYGiB or COUNTxMEMORYGiBxCOREScores)",
    "model_billions": "Parameters of the model, billions",
    "update_seconds": "Seconds of an update, as measured or as you expect it",
}
"""What is asked, by the number."""


def new(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write, such as cluster.toml.")],
    gpus: Annotated[int | None, typer.Option(min=2, help="GPUs, for engines and trainer together; default 8.")] = None,
    trainer_gpus: Annotated[int | None, typer.Option(min=1, help="Those of the trainer; default: half.")] = None,
    desktops: Annotated[int | None, typer.Option(min=1, help="Desktops; default 64.")] = None,
    hosts: Annotated[
        str | None, typer.Option(help="Machines for desktops: 4x64GiB, or 4x64GiBx32cores; default 8x64GiBx32cores.")
    ] = None,
    model_billions: Annotated[
        float | None, typer.Option(help="Parameters of the model, billions; default 7. An engine is one GPU.")
    ] = None,
    update_seconds: Annotated[
        float | None, typer.Option(min=0.001, help="Seconds of an update of a full batch; default 216.")
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="GPU profile: h100, h100_fp8, a100_80; default h100.")] = None,
    profile: Annotated[
        str | None, typer.Option(help="Latencies of desktops: osworld, dart, desktop-small; default osworld.")
    ] = None,
    workload: Annotated[str | None, typer.Option(help="Whose tasks and lengths of attempts; default osworld.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing; take the defaults.")] = False,
) -> None:
    r"""Write a file with your own cluster, which every command takes as --on FILE.

    It asks for the numbers that decide most answers. All other settings are in the file too, with their meaning and
    source, ready to be edited. `dartsim import-latencies` and `dartsim measure` replace assumed latencies by measured
    ones. Without a terminal nothing is asked.

    Examples:
        dartsim new cluster.toml
        dartsim new large.toml --gpus 8 --desktops 80 --hosts 10x64GiBx32cores \
          --update-seconds 240 --yes
        dartsim new small.toml --gpus 2 --desktops 16 --hosts 2x64GiB --yes
    """
    from dartsim.core.errors import ConfigError
    from dartsim.core.words import plural
    from dartsim.lab.new_cluster import ClusterNumbers, write_cluster

    if file.exists():
        raise ConfigError(f"{file} exists already; name another file, or remove it")
    given: dict[str, Any] = {
        "gpus": gpus,
        "trainer_gpus": trainer_gpus,
        "desktops": desktops,
        "hosts": hosts,
        "model_billions": model_billions,
        "update_seconds": update_seconds,
        "gpu": gpu,
        "profile": profile,
        "workload": workload,
    }
    if not yes and sys.stdin.isatty():
        for default in fields(ClusterNumbers):
            if default.name in QUESTIONS and given[default.name] is None:
                given[default.name] = typer.prompt(
                    QUESTIONS[default.name], default=default.default, type=type(default.default)
                )
    numbers = ClusterNumbers(**{name: value for name, value in given.items() if value is not None})
    write_cluster(numbers, file)
    settings = numbers.settings
    engines = plural(settings["rollout.num_workers"], "GPU")
    out.print(
        f"{file}: {plural(numbers.desktops, 'desktop')} on {numbers.hosts}, {engines} for engines "
        f"and {settings['cluster.learner.gpus']} for the trainer, {numbers.update_seconds:g} s an update of about "
        f"{numbers.batch_turns:,.0f} turns",
        soft_wrap=True,
        highlight=False,
    )
    out.print(f"next: dartsim plan --on {file}", soft_wrap=True, highlight=False)
    out.print(f"      dartsim compare dartsim areal-eta4 dart --on {file} --seeds 3", soft_wrap=True, highlight=False)
