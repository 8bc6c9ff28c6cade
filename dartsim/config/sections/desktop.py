"""Desktops: how they are reverted between attempts, and the Docker engines that real ones run on."""

from __future__ import annotations

import os
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field

from dartsim.core.errors import ConfigError
from dartsim.core.section import Fuzzed, Positive, Seconds, Section

DEFAULT_URL = "unix:///var/run/docker.sock"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
ANY = ("0.0.0.0", "::")


class DockerHostConfig(Section):
    """One Docker engine that containers run on."""

    url: str | None = Field(
        None,
        pattern="^(unix|tcp|ssh|https?)://",
        description="Address of the engine, unix://, tcp:// or ssh://; none: DOCKER_HOST, or the local engine. "
        "DOCKER_TLS_VERIFY and DOCKER_CERT_PATH configure TLS for tcp://. With ssh:// every call opens a "
        "connection of the user's ssh: ControlMaster auto in the ssh configuration makes calls cheap.",
    )
    address: str | None = Field(
        None, description="Address at which clients reach published ports; none: taken from the url, or loopback."
    )
    bind: str = Field(
        "127.0.0.1",
        description="Address of the host on which ports are published; beyond loopback our desktops require a token.",
    )
    without_token: bool = Field(
        False, description="osworld: accept that whoever reaches bind can use the desktops: they have no token."
    )
    max_desktops: Positive = Field(64, description="Largest number of desktops on this host, including spares.")
    concurrent_starts: Positive = Field(2, description="Containers that start at the same time.")

    @property
    def target(self) -> str:
        return self.url or os.environ.get("DOCKER_HOST") or DEFAULT_URL

    @property
    def machine(self) -> str | None:
        """The machine in the engine's address; None if it is this one."""
        parts = urlsplit(self.url or os.environ.get("DOCKER_HOST") or "unix://")
        if parts.scheme in ("unix", "npipe") or parts.hostname in LOOPBACK:
            return None
        return parts.hostname

    @property
    def local(self) -> bool:
        """Whether the engine runs on this machine and shares its devices and files."""
        return self.machine is None

    @property
    def client_address(self) -> str:
        """The name or IP address at which clients here reach published ports.

        Raises:
            ConfigError: If the ports are published on the loopback of another machine.
        """
        if self.address is not None:
            return self.address
        machine = self.machine
        if machine is None:
            return "127.0.0.1" if self.bind in (*ANY, *LOOPBACK) else self.bind
        if self.bind in LOOPBACK:
            raise ConfigError(
                f"host {self.target} publishes ports on its own {self.bind}, where nothing here reaches them: "
                f"set bind to an address of {machine} that only your machines reach "
                "(desktop.hosts.NAME.bind, or --bind), or address to the near end of a tunnel"
            )
        return machine if self.bind in ANY else self.bind


class DesktopConfig(Section):
    """Desktops, and the containers of real ones."""

    revert: Annotated[Literal["boot", "snapshot", "fork"], Fuzzed(("boot", "fork", "snapshot"))] = Field(
        "boot",
        description="How a desktop gets ready for its next attempt: boot (another desktop is started), snapshot (it "
        "returns to its state after the boot), or fork (to the state after the task's set-up, which the first attempt "
        "saves and all attempts of the task on that host share).",
    )
    states_gib: float = Field(
        16.0,
        gt=0.0,
        description="What saved states may take on each host, GiB: of the disk that Docker's volumes are on, or of a "
        "modeled host's memory (QEMU's savevm of a desktop: 0.37). The least recently used is deleted first.",
    )
    variant: Literal["skeleton", "apps", "vm"] = Field(
        "skeleton", description="desktop: which of our images, see `dartsim desktop build`."
    )
    image: str | None = Field(None, description="Another image with the same interface; none: that of the variant.")
    hosts: dict[str, DockerHostConfig] = Field(
        default_factory=dict, description="Docker engines, one table per name; none: the local engine."
    )
    width: int = Field(1920, ge=96, description="Width of the screen, pixels.")
    height: int = Field(1080, ge=96, description="Height of the screen, pixels.")
    memory_mib: Positive = Field(1024, description="Memory limit of a container, MiB (OSWorld's VM: 4 GiB and more).")
    cpus: float = Field(2.0, gt=0.0, description="Cores that a container may use.")
    settle: Literal["stable"] | Seconds = Field(
        "stable",
        description="Pause between an action and its screenshot: until two frames are equal (stable), or a fixed "
        "number of seconds (OSWorld: 2, its runner of UI-TARS-1.5: 3; DART: 5, later 2).",
    )
    max_settle_seconds: Seconds = Field(2.0, description="stable: longest wait for two equal frames.")
    wait_seconds: Seconds = Field(
        1.0,
        description="Duration of the action wait(), before that pause (UI-TARS-1.5 is told 5; OSWorld: as long as the "
        "pause).",
    )
    ready: Literal["stable"] | Seconds = Field(
        "stable",
        description="Wait after a task's set-up: until the screen shows the task and rests (stable), or a fixed "
        "number of seconds (OSWorld's runner and DART: 60).",
    )
    evaluate_wait_seconds: Seconds = Field(
        0.0,
        description="Pause between the last action and the score (OSWorld's runner: 20; DART: 0). An emulated machine "
        "that is busy may save a file a second after its screen rests.",
    )
    typing: Literal["keys", "paste"] = Field(
        "keys",
        description="type(): by keys, and what the keyboard lacks through the clipboard; or all through the clipboard "
        "(OSWorld's agent of UI-TARS with input_swap).",
    )
    download_hosts: list[str] = Field(
        default_factory=list,
        description="Hosts in the URLs of task files that may be private; all others must be on the public internet.",
    )
    disk: str | None = Field(
        None,
        description="osworld and variant vm: path of the virtual machine's disk on the engine's machine, such as "
        "OSWorld's Ubuntu.qcow2; it is only read. Variant vm without one: our own.",
    )
    firmware: Literal["uefi", "bios"] = Field(
        "uefi", description="variant vm with disk: the firmware that starts the disk's boot loader."
    )
    kvm: Literal["auto", "on", "off"] = Field(
        "auto", description="osworld and variant vm: KVM acceleration; auto: if the machine has it."
    )

    @property
    def own_disk(self) -> bool:
        """Whether a virtual machine of our image boots the user's disk."""
        return self.variant == "vm" and self.disk is not None
