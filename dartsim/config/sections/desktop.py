"""Real desktops, and the Docker engines that they run on."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dartsim.core.section import Positive, Seconds, Section


class DesktopHostConfig(Section):
    """One Docker engine that desktops run on."""

    url: str | None = Field(
        None, description="unix://, tcp:// or ssh:// address of its engine; none: DOCKER_HOST or the local one."
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
    hosts: dict[str, DesktopHostConfig] = Field(
        default_factory=dict, description="Docker engines by name, a table each; none: the local one."
    )
    width: int = Field(1920, ge=96, description="Of its screen, pixels.")
    height: int = Field(1080, ge=96, description="Of its screen, pixels.")
    memory_mib: Positive = Field(1024, description="Memory limit of a container (OSWorld's VM: 4 GiB and more).")
    cpus: float = Field(2.0, gt=0.0, description="Cores a container may use.")
    pids: Positive = Field(512, description="Processes a container may have.")
    shm_mib: Positive = Field(64, description="Shared memory of a container.")
    concurrent_starts: Positive = Field(2, description="Containers that one engine starts at a time.")
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
    download_hosts: list[str] = Field(
        default_factory=list,
        description="Hosts of task files' URLs that may be private; all others must be of the public internet.",
    )
    scoring: ScoringConfig = Field(default_factory=ScoringConfig, description="Sandboxes in which scores are computed.")
    disk: str | None = Field(None, description="osworld: the virtual machine's disk, Ubuntu.qcow2.")
    kvm: Literal["auto", "on", "off"] = Field("auto", description="osworld: hardware acceleration.")
