"""Real desktops, and the Docker engines that they run on."""

from __future__ import annotations

import os
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field

from dartsim.core.errors import ConfigError
from dartsim.core.section import Deadline, Positive, Seconds, Section

DEFAULT_URL = "unix:///var/run/docker.sock"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
ANY = ("0.0.0.0", "::")


class DockerHostConfig(Section):
    """One Docker engine that containers run on."""

    url: str | None = Field(
        None,
        pattern="^(unix|tcp|ssh|https?)://",
        description="unix://, tcp:// or ssh:// address of its engine; none: DOCKER_HOST or the local one. "
        "DOCKER_TLS_VERIFY and DOCKER_CERT_PATH configure TLS for tcp://. Over ssh:// every call is a connection of "
        "the user's ssh: ControlMaster auto in its configuration makes them cheap.",
    )
    address: str | None = Field(
        None, description="Where its published ports are reached; none: by the url, or loopback."
    )
    bind: str = Field(
        "127.0.0.1",
        description="Address of the host that ports are published on; beyond loopback our desktops want a token.",
    )
    without_token: bool = Field(
        False, description="osworld: accept that whoever reaches bind may use the desktops; their server has no token."
    )
    max_desktops: Positive = Field(64, description="Most desktops on it, spares included.")
    concurrent_starts: Positive = Field(2, description="Containers that it starts at a time.")
    concurrent_calls: Positive = Field(8, description="Other calls at a time.")
    call_seconds: Deadline = Field(60.0, description="Longest time of one call.")
    ports_seconds: Deadline = Field(10.0, description="Longest time until it reports a container's published ports.")
    cancel_seconds: Seconds = Field(
        10.0, description="Longest wait of a canceled start for its clean-up, which continues in the background."
    )
    renewal_seconds: Deadline = Field(
        30.0,
        description="Interval of renewing the lease and looking for lost containers, at most a third of lease_seconds.",
    )
    lease_seconds: Deadline = Field(
        900.0, description="How long a container outlives the last sign of life of an owner on another machine."
    )

    @property
    def target(self) -> str:
        """The engine's address, for messages."""
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
                f"set bind to an address of {machine} that only your machines reach, "
                "or address to the near end of a tunnel"
            )
        return machine if self.bind in ANY else self.bind


class ScoringConfig(Section):
    """Sandboxes in which scores are computed."""

    sandbox: Literal["auto", "container", "bubblewrap", "process"] = Field(
        "auto", description="Kind; process is for our own metrics alone, which run no code of an agent."
    )
    sandboxes: Positive | None = Field(None, description="Scores at a time; none: one for each core.")
    metric_seconds: Seconds = Field(60.0, description="Longest time of one metric.")
    getter_seconds: Seconds = Field(300.0, description="Longest time of one of desktop-env's getters.")
    cpu_seconds: Positive = Field(30, description="Processor time of one metric.")
    memory_mib: Positive = Field(1024, description="Memory of one metric.")
    scratch_mib: Positive = Field(512, description="Files of one metric, unpacked ones included.")


class DesktopConfig(Section):
    """Real desktops in containers."""

    variant: Literal["skeleton", "full"] = Field(
        "skeleton", description="desktop: which of our images; see `dartsim desktop build`."
    )
    office: bool = Field(False, description="desktop: the image with LibreOffice Calc.")
    image: str | None = Field(None, description="Another image of the same interface; none: the variant's.")
    hosts: dict[str, DockerHostConfig] = Field(
        default_factory=dict, description="Docker engines by name, a table each; none: the local one."
    )
    width: int = Field(1920, ge=96, description="Of its screen, pixels.")
    height: int = Field(1080, ge=96, description="Of its screen, pixels.")
    memory_mib: Positive = Field(1024, description="Memory limit of a container (OSWorld's VM: 4 GiB and more).")
    cpus: float = Field(2.0, gt=0.0, description="Cores a container may use.")
    pids: Positive = Field(512, description="Processes a container may have.")
    shm_mib: Positive = Field(64, description="Shared memory of a container.")
    action_pause_seconds: Seconds = Field(
        0.0, description="desktop: pyautogui's pause after each of its calls (its own default: 0.1)."
    )
    settle: Literal["stable"] | Seconds = Field(
        "stable",
        description="Pause between an action and its screenshot: until two frames are equal, or so many seconds "
        "(OSWorld: 2, its runner of UI-TARS-1.5: 3; DART: 5, later 2).",
    )
    settle_most_seconds: Seconds = Field(2.0, description="Longest wait for two equal frames.")
    wait_seconds: Seconds = Field(
        1.0,
        description="What the action wait() waits before that pause (UI-TARS-1.5 is told 5; OSWorld: as long as the "
        "pause).",
    )
    ready: Literal["stable"] | Seconds = Field(
        "stable",
        description="After a task's set-up: until the screen shows it and rests, or so many seconds (OSWorld's runner "
        "and DART: 60).",
    )
    evaluate_wait_seconds: Seconds = Field(
        0.0, description="Between the last action and its score (OSWorld's runner: 20; DART: 0)."
    )
    typing: Literal["keys", "paste"] = Field(
        "keys",
        description="type(): by keys, and what the keyboard lacks through the clipboard; or all through the clipboard "
        "(OSWorld's agent of UI-TARS with input_swap).",
    )
    download_hosts: list[str] = Field(
        default_factory=list,
        description="Hosts of task files' URLs that may be private; all others must be of the public internet.",
    )
    scoring: ScoringConfig = Field(default_factory=ScoringConfig, description="Sandboxes in which scores are computed.")
    disk: str | None = Field(None, description="osworld: the virtual machine's disk, Ubuntu.qcow2.")
    kvm: Literal["auto", "on", "off"] = Field("auto", description="osworld: hardware acceleration.")
