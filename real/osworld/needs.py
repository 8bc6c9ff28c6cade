"""What a task needs of its desktop: applications, accounts and the internet, read from its file before any run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from dartsim.core.types import Task
from dartsim.envs.base import task_getters, task_steps
from dartsim.real.osworld.fetch import Downloads, task_urls
from dartsim.real.osworld.getters import REFUSED_GETTERS
from dartsim.real.osworld.steps import REFUSED_STEPS

PROGRAMS: Mapping[str, str] = {
    "code": "Visual Studio Code",
    "gimp": "GIMP",
    "gnome-terminal": "GNOME Terminal",
    "google-chrome": "Chrome",
    "libreoffice": "LibreOffice",
    "nautilus": "GNOME Files",
    "snap": "snap",
    "systemctl": "systemd",
    "thunderbird": "Thunderbird",
    "timedatectl": "systemd",
    "vlc": "VLC",
}
"""Programs that OSWorld's tasks use and a desktop may lack, and their names."""

RELATED_APPS: Mapping[str, str] = {"chrome": "google-chrome", "vscode": "code", "vs_code": "code"}
"""Applications that task files name in another way than by their program; those of LibreOffice begin with its name."""

APPS_PROGRAMS = frozenset(
    {"gimp", "gnome-terminal", "google-chrome", "libreoffice", "thunderbird", "timedatectl", "vlc"}
)
VARIANT_PROGRAMS: Mapping[str, frozenset[str]] = {"apps": APPS_PROGRAMS}
"""Which of ``PROGRAMS`` our images have; images that are not named have none."""
PACKAGES = frozenset({"bc", "expect", "jq", "unzip"})
"""Packages that tasks install and our image ``apps`` already has."""

BY_HAND: Mapping[str, str] = {"94d95f96-9699-4208-98ba-3c3119edf9c2": "spotify"}
"""Tasks whose files do not show that they need the internet, and what they fetch from there."""

SETTERS = ("execute", "command", "execute_with_verification", "launch")
ACCOUNTS = {
    **{step: REFUSED_STEPS[step] for step in ("login", "googledrive")},
    "googledrive_file": REFUSED_GETTERS["googledrive_file"],
}
_URL = re.compile(r"https?://[^\s\"'<>\\]+")
_INSTALL = re.compile(r"\b(apt|apt-get|snap|pip|pip3|npm)\s+(?:-\S+\s+)*install\s+([^;&|\n]+)")
_EXTENSION = re.compile(r"--install-extension[\s\"',]+([\w-]+\.[\w-]+)(?=[\s\"']|$)")
_PUBLIC_NAME = re.compile(r"\w\.[a-z]{2,}$")
"""A host that is no address, not ``localhost``, and not the beginning of a name."""
_SEGMENTS = re.compile(r"[;&|\n]+")
_ASSIGNMENT = re.compile(r"\w+=")


class Need(NamedTuple):
    """Something that a task needs."""

    what: str
    detail: str

    def __str__(self) -> str:
        return f"{self.what}: {self.detail}"


@dataclass(frozen=True, slots=True)
class DesktopOffer:
    """What desktops offer to tasks.

    Attributes:
        programs: Those of ``PROGRAMS`` that they have; None for all, as on OSWorld's own machine.
        internet: Whether they and this machine reach it.
        cache: Folder of downloads.
    """

    programs: frozenset[str] | None = None
    internet: bool = True
    cache: Path | None = None


def offer_of(variant: str, *, internet: bool = True, cache: Path | None = None) -> DesktopOffer:
    """Return what desktops of one of our images offer."""
    return DesktopOffer(VARIANT_PROGRAMS.get(variant, frozenset()), internet, cache)


def missing_needs(task: Task, offer: DesktopOffer) -> tuple[Need, ...]:
    """Return the applications and accounts that a task needs and desktops lack."""
    accounts = [Need("needs a Google account", ACCOUNTS[kind]) for kind in _kinds(task) if kind in ACCOUNTS]
    lacking = () if offer.programs is None else sorted(programs_of(task) - offer.programs)
    names = dict.fromkeys(PROGRAMS[name] for name in lacking)
    return (*dict.fromkeys(accounts), *(Need("needs an application that is missing", name) for name in names))


def programs_of(task: Task) -> set[str]:
    """Return those of ``PROGRAMS`` that a task's file names or its commands run."""
    related = {str(app).lower() for app in task.spec.get("related_apps") or ()}
    named = {"libreoffice" if app.startswith("libreoffice") else RELATED_APPS.get(app, app) for app in related}
    kinds = set(_kinds(task))
    if "vm_terminal_output" in kinds:
        named.add("gnome-terminal")
    run = {PurePosixPath(word).name for words in _commands(task) for word in _programs(words)}
    return (named | run) & PROGRAMS.keys()


def internet_needs(task: Task, offer: DesktopOffer) -> tuple[Need, ...]:
    """Return why a task needs the internet, as far as its files are not in the cache."""
    needs = [
        *(Need("downloads files", host) for host in _hosts(_not_fetched(task, offer.cache))),
        *(Need("opens web pages", host) for host in _hosts(_opened(task))),
        *(Need("is scored by web pages", host) for host in _hosts(_scored_by(task))),
        *(Need("installs software", name) for name in _installed(task, offer)),
    ]
    if not needs and task.spec.get("proxy"):
        needs.append(Need("uses the web", "OSWorld runs it behind a proxy"))
    return tuple(dict.fromkeys(needs))


def _not_fetched(task: Task, cache: Path | None) -> Iterator[str]:
    for url in task_urls(task):
        if urlsplit(url).scheme != "file" and not (cache is not None and (cache / Downloads.name(url)).is_file()):
            yield url


def _opened(task: Task) -> Iterator[str]:
    for step in task_steps(task):
        if step["type"] == "chrome_open_tabs":
            yield from step.get("parameters", {}).get("urls_to_open", ())


def _scored_by(task: Task) -> Iterator[str]:
    for getter in task_getters(task):
        if getter["type"] != "cloud_file":
            yield from _texts({key: value for key, value in getter.items() if key != "command"})


def _installed(task: Task, offer: DesktopOffer) -> Iterator[str]:
    if task.id in BY_HAND:
        yield BY_HAND[task.id]
    for words in _commands(task):
        line = words if isinstance(words, str) else shlex.join(words)
        for tool, names in _INSTALL.findall(line):
            for name in names.split():
                there = tool.startswith("apt") and offer.programs is not None and name in PACKAGES
                if not there and not name.startswith(("-", "/", ".")):
                    yield name.strip("'\"")
        yield from _EXTENSION.findall(line)


def _hosts(texts: Iterable[str]) -> list[str]:
    """Return the public hosts of URLs; one that Chrome opens may have no scheme."""
    hosts = []
    for text in texts:
        host = urlsplit(text if "//" in text else f"//{text}").hostname or ""
        if _PUBLIC_NAME.search(host):
            hosts.append(host)
    return list(dict.fromkeys(hosts))


def _texts(value: Any) -> Iterator[str]:
    """Yield the URLs anywhere in a JSON value."""
    if isinstance(value, str):
        yield from _URL.findall(value)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)


def _kinds(task: Task) -> list[str]:
    return [each["type"] for each in (*task_steps(task), *task_getters(task))]


def _commands(task: Task) -> list[str | list[str]]:
    """Return the commands of a task's steps and getters."""
    commands = [step.get("parameters", {}).get("command") for step in task_steps(task) if step["type"] in SETTERS]
    commands += [getter.get("command") for getter in task_getters(task)]
    return [command for command in commands if isinstance(command, str | list)]


def _programs(words: str | list[str]) -> Iterator[str]:
    """Yield the first word of each command in a line of a shell, or of a list of words."""
    lines = [words] if isinstance(words, str) else words[2:3] if words[1:2] == ["-c"] else [words[0]] if words else []
    for line in lines:
        for segment in _SEGMENTS.split(line):
            parts = [word for word in segment.split() if not _ASSIGNMENT.match(word)]
            while parts and (parts[0] == "sudo" or parts[0].startswith("-")):
                parts = parts[1:]
            yield from parts[:1]
