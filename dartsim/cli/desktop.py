"""``dartsim desktop``: real desktops in containers, their tasks, and the evaluators of those tasks."""

from __future__ import annotations

from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dartsim.cli.command_group import command_group
from dartsim.cli.console import errors, out, result
from dartsim.cli.options import Json, Overrides, file_target
from dartsim.core.errors import ConfigError
from dartsim.core.words import plural

if TYPE_CHECKING:
    from dartsim.config import Config
    from dartsim.config.schema import DockerHostConfig
    from dartsim.real.containers import ContainerSpec

desktop_app = command_group("desktop", "Real desktops in containers, their tasks and evaluator.")


ImageVariant = Literal["skeleton", "apps", "vm"]
"""Variants of our desktop image."""

VariantOption = Annotated[
    ImageVariant,
    typer.Option(
        help="skeleton: a second, with this machine's /usr mounted; apps: minutes, a Debian of its own with "
        "OSWorld's applications; vm: minutes, a virtual machine with a small Debian."
    ),
]
Host = Annotated[
    str | None, typer.Option(metavar="URL", help="Engine: unix://, tcp:// or ssh://; default: DOCKER_HOST or local.")
]


@desktop_app.command()
def build(
    variant: VariantOption = "skeleton",
    again: Annotated[bool, typer.Option("--again", help="Rebuild it even if it exists.")] = False,
    host: Host = None,
) -> None:
    """Build our desktop image on a container engine, unless it exists.

    Examples:
        dartsim desktop build
        dartsim desktop build --variant apps
        dartsim desktop build --variant vm
    """
    settings = engine_settings(host)
    import asyncio

    from dartsim.real.desktop import build as build_image

    with errors.status("building"):
        out.print(asyncio.run(build_image(variant, settings, again=again, on_line=errors.print)))


@desktop_app.command()
def start(
    variant: VariantOption = "skeleton",
    app: Annotated[str, typer.Option(help="A program to start in it, e.g. mousepad.")] = "",
    overrides: Overrides = None,
    show: Annotated[
        Path | None, typer.Option(metavar="PNG", callback=file_target, help="Write a screenshot to this file.")
    ] = None,
    vnc: Annotated[bool, typer.Option("--vnc", help="Serve a viewer for web browsers.")] = False,
    seconds: Annotated[
        float | None, typer.Option(min=0.0, help="Remove it after this time; default: on Ctrl-C.")
    ] = None,
    host: Host = None,
    bind: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address of the host on which its ports are published.")
    ] = None,
    json_file: Json = None,
) -> None:
    """Start one desktop, print the address of its server (and viewer), and remove it on Ctrl-C.

    With --bind to another address than loopback, its server requires a token, which is printed.

    Examples:
        dartsim desktop start --app mousepad --show desktop.png --seconds 0
        dartsim desktop start --vnc
        dartsim desktop start --variant apps --host ssh://me@vm-1 --bind 10.0.0.5
        dartsim desktop start --variant vm --set desktop.disk=/data/Ubuntu.qcow2 \
          --set desktop.memory_mib=6144 --show desktop.png --seconds 0
    """
    settings = engine_settings(host, bind)
    import asyncio

    from dartsim.config import load
    from dartsim.real.desktop import desktop_spec

    chosen = [f"desktop.variant={variant}", "desktop.width=1920", "desktop.height=1080", *(overrides or ())]
    config = load("desktop", overrides=chosen)
    spec = desktop_spec(config.desktop, app=app, vnc=vnc)
    with suppress(KeyboardInterrupt):
        asyncio.run(_start(settings, config, spec, show, seconds, json_file))


async def _start(
    settings: DockerHostConfig,
    config: Config,
    spec: ContainerSpec,
    show: Path | None,
    seconds: float | None,
    json_file: str | None,
) -> None:
    import asyncio

    from dartsim.real.containers import DockerHost
    from dartsim.real.containers.spec import with_token
    from dartsim.real.machine import is_loopback
    from dartsim.real.osworld.backend import CONSOLES, desktop_options, own_server
    from dartsim.real.osworld.connect import connect
    from dartsim.real.osworld.fetch import cache_folder
    from dartsim.real.osworld.provider import address_of, boot
    from dartsim.real.osworld.scorer import Scorer

    loop, token = asyncio.get_running_loop(), ""
    if own_server(config) and not is_loopback(settings.bind):
        spec, token = with_token(spec)
    cache = cache_folder()
    async with DockerHost(settings) as engine:
        begun = loop.time()
        container = await engine.start(spec, slot=0)
        urls = {name: f"http://{container.host}:{port}" for name, port in container.ports.items()}
        desktop = connect(address_of(container), desktop_options(config, cache, Scorer(), token=token))
        try:
            await boot(desktop, container, cache / CONSOLES)
            facts = {"name": container.name, **urls, "seconds": round(loop.time() - begun, 3)}
            facts |= {"token": token} if token else {}
            if show is not None:
                await asyncio.to_thread(show.write_bytes, await desktop.client.screenshot())
        finally:
            await desktop.close()
        console = result(facts, json_file)
        width, height = config.desktop.width, config.desktop.height
        console.say(f"{container.name}: {width} x {height}, ready after {facts['seconds']:.1f} s")
        console.say(f"server: {urls['server']}" + (f", token {token}" if token else ""))
        if "vnc" in urls:
            console.say(f"viewer: {urls['vnc']}/vnc.html")
        if show is not None:
            console.say(f"screenshot: {show}")
        if seconds is None:
            errors.print("Ctrl-C removes it")
        await asyncio.sleep(seconds if seconds is not None else float("inf"))


@desktop_app.command()
def reap(
    everybody: Annotated[bool, typer.Option("--all", help="Also remove containers of active runs.")] = False,
    host: Host = None,
    json_file: Json = None,
) -> None:
    """Remove our containers that no run uses any more, and never anyone else's.

    Examples:
        dartsim desktop reap
        dartsim desktop reap --all --json -
    """
    settings = engine_settings(host, "0.0.0.0")  # no port is published
    import asyncio

    from dartsim.real.containers import DockerHost

    async def work() -> int:
        async with DockerHost(settings) as engine:
            return await engine.reap(everybody=everybody)

    removed = asyncio.run(work())
    result({"removed": removed}, json_file).print(f"removed {plural(removed, 'container')}")


def engine_settings(url: str | None, bind: str | None = None) -> DockerHostConfig:
    """Return the settings to connect to an engine.

    Raises:
        ConfigError: If the packages for real desktops are missing, or the URL is not an engine's.
    """
    missing = [name for name in ("docker", "httpx") if find_spec(name) is None]
    if missing:
        from dartsim.core.install import install_command

        raise ConfigError(f"real desktops need {' and '.join(missing)}: {install_command('real')}")
    from pydantic import ValidationError

    from dartsim.config.schema import DockerHostConfig

    try:
        return DockerHostConfig(url=url) if bind is None else DockerHostConfig(url=url, bind=bind)
    except ValidationError:
        raise ConfigError(f"--host must begin with unix://, tcp:// or ssh://, got {url!r}") from None
