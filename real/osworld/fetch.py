"""The files of tasks on this host: ``Downloads``, fetched once by URL, and ``TaskFolder``, those of one attempt.

A file is complete or absent: it is written under another name and renamed to the hash of its content, to which a link
named ``Downloads.name(url)`` points. Files placed in the folder beforehand under that name are not fetched.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from dartsim.core.errors import TaskFileError
from dartsim.core.types import Task
from dartsim.envs.base import task_getters, task_steps
from dartsim.real.osworld.addresses import Resolve, check_public, resolve
from dartsim.real.osworld.errors import FetchFailed

if TYPE_CHECKING:
    import httpx

TRIES = 3
"""As OSWorld."""
TRY_SECONDS = 300.0
"""Limit of one try, as OSWorld."""
CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
BETWEEN_SECONDS = 1.0
MAX_BYTES = 2 * 2**30
EMPTY_HISTORY_URL = (
    "https://huggingface.co/datasets/xlangai/ubuntu_osworld_file_cache/resolve/main/chrome/"
    "44ee5668-ecd5-4366-a6ce-c1c9b8d4e938/history_empty.sqlite?download=true"
)
"""An empty history of the Chrome in OSWorld's image; another version of Chrome throws it away."""
HASHED = "sha256"
"""Folder of downloads by their hashes."""
SCHEMES = ("https", "http", "file")
START_BYTES = 200
"""Bytes at the start of a file that ``check_content`` looks at."""
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
PAGES = ("", ".html", ".htm", ".xhtml", ".php", ".asp", ".aspx", ".jsp")
"""Suffixes of files that may be HTML pages."""


class Downloads:
    """A folder of downloads, shared by all attempts of a run.

    Args:
        folder: Made when first used.
        sources: Folders that ``file:`` URLs and the paths of ``upload_file`` may point into; a relative path is
            looked up in each, in order.
        transport: Of the HTTP client, without a look at addresses; by default the network.
        max_bytes: Larger files are refused.
        allowed: Hosts that may have any address; all others must be of the public internet.
        look_up: Returns the addresses of a host; by default the system's resolver.
    """

    def __init__(
        self,
        folder: Path,
        *,
        sources: Sequence[Path] = (),
        transport: httpx.AsyncBaseTransport | None = None,
        max_bytes: int = MAX_BYTES,
        allowed: Collection[str] = (),
        look_up: Resolve | None = None,
    ) -> None:
        self.folder = folder
        self._allowed = frozenset(host.lower() for host in allowed)
        self._look_up = look_up or (resolve if transport is None else None)
        self.sources = tuple(sources)
        self._transport = transport
        self._max_bytes = max_bytes
        self._locks: dict[str, asyncio.Lock] = {}

    @staticmethod
    def name(url: str) -> str:
        """Return the name a download of ``url`` has in the folder."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, url))

    async def fetch(self, url: str) -> Path:
        """Return the file behind a URL, from the folder if it is there.

        Raises:
            FetchFailed: If the URL is none that may be fetched, or three tries failed.
        """
        check_url(url)
        parts = urlsplit(url)
        if parts.scheme == "file":
            return local_file(unquote(parts.path), self.sources)
        path = self.folder / self.name(url)
        # Attempts of one task begin together and want the same files.
        lock = self._locks.setdefault(url, asyncio.Lock())
        try:
            async with lock:
                if not await asyncio.to_thread(path.is_file):
                    await self._download(url, path)
        finally:
            # Who comes now finds the file, or tries anew.
            self._locks.pop(url, None)
        return path

    async def verified(self, url: str) -> Path:
        """Return as ``fetch`` does, after fetching a file anew whose content no longer has its hash."""
        path = self.folder / self.name(url)
        await asyncio.to_thread(_drop_changed, path)
        return await self.fetch(url)

    async def _download(self, url: str, path: Path) -> None:
        import httpx

        self.folder.mkdir(parents=True, exist_ok=True)
        timeout = httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS)
        reason: Exception | None = None
        async with httpx.AsyncClient(
            timeout=timeout,
            follow_redirects=True,
            transport=self._transport,
            headers={"Accept-Encoding": "identity"},
            event_hooks={"request": [self._check_request]},
        ) as client:
            for number in range(TRIES):
                if number:
                    await asyncio.sleep(BETWEEN_SECONDS)
                try:
                    async with asyncio.timeout(TRY_SECONDS):
                        return await self._once(client, url, path)
                except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as exc:
                    reason = exc
                    # What the server refuses for good it will refuse again.
                    if isinstance(exc, httpx.HTTPStatusError) and exc.response.status_code in (401, 403, 404, 410):
                        break
        raise FetchFailed(f"{url} could not be downloaded: {type(reason).__name__}: {reason}") from reason

    async def _check_request(self, request: httpx.Request) -> None:
        """Refuse a host that may not be asked, and a redirection to one or to a file of this machine."""
        host = request.url.host
        if request.url.scheme not in ("http", "https"):
            raise FetchFailed(f"found a redirection to {request.url}, wanted one to http or https")
        if self._look_up is not None and host.lower() not in self._allowed:
            await check_public(host, self._look_up)

    async def _once(self, client: httpx.AsyncClient, url: str, path: Path) -> None:
        handle, name = await asyncio.to_thread(tempfile.mkstemp, prefix=".part-", dir=self.folder)
        digest = hashlib.sha256()
        try:
            with os.fdopen(handle, "wb") as file:
                async with client.stream("GET", url) as response:
                    response.raise_for_status()
                    size, start = 0, b""
                    async for chunk in response.aiter_bytes(2**20):
                        size += len(chunk)
                        if size > self._max_bytes:
                            raise FetchFailed(f"{url} has more than {self._max_bytes:,} bytes; allow larger downloads")
                        start = start or chunk[:START_BYTES]
                        digest.update(chunk)
                        await asyncio.to_thread(file.write, chunk)
                check_content(url, start)
            await asyncio.to_thread(_keep, Path(name), path, digest.hexdigest())
        finally:
            _discard(name)


def cache_folder() -> Path:
    """Return where downloads are kept between runs: DARTSIM_CACHE, or the user's cache folder."""
    chosen = os.environ.get("DARTSIM_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dartsim"


def local_file(name: str, sources: Sequence[Path]) -> Path:
    """Return a file of this host that tasks may use.

    Raises:
        FetchFailed: If it is not inside ``sources``, wherever links lead, or is no file, or a pointer to one.
    """
    for source in sources:
        real = (source / name).resolve()
        if real.is_relative_to(source.resolve()) and real.is_file():
            with real.open("rb") as file:
                if file.read(START_BYTES).startswith(LFS_POINTER):
                    raise FetchFailed(f"{real} is a pointer of Git LFS; fetch the file itself with `git lfs pull`")
            return real
    allowed = ", ".join(map(str, sources)) or "none"
    raise FetchFailed(f"found the local file {name!r}, wanted a file inside the task folders ({allowed})")


def _keep(part: Path, path: Path, digest: str) -> None:
    """Name a downloaded file by its hash, and let ``path`` point to it."""
    target = path.parent / HASHED / digest
    target.parent.mkdir(exist_ok=True)
    part.replace(target)
    part.symlink_to(f"{HASHED}/{digest}")
    part.replace(path)


def _drop_changed(path: Path) -> None:
    """Remove a download whose content does not have the hash that it was kept by."""
    try:
        target = path.readlink()
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return  # not there, or put there by hand
    if found != target.name:
        path.resolve().unlink()
        path.unlink()


def _discard(name: str) -> None:
    Path(name).unlink(missing_ok=True)


def check_url(url: str) -> None:
    """Refuse what is no URL of a file.

    Raises:
        FetchFailed: If the scheme is not http, https or file, or the host is missing or not wanted.
    """
    try:
        parts = urlsplit(url)
    except ValueError as exc:
        raise FetchFailed(f"found the URL {url!r}: {exc}") from None
    if parts.scheme not in SCHEMES:
        raise FetchFailed(f"found the URL {url!r}, wanted one that begins with {', '.join(SCHEMES)}")
    if (parts.scheme == "file") == bool(parts.hostname):
        raise FetchFailed(f"found the URL {url!r}, wanted a host for http and none for file")
    if not parts.path.strip("/"):
        raise FetchFailed(f"found the URL {url!r}, wanted the path of a file")


def check_content(url: str, start: bytes) -> None:
    """Refuse what a server gives in place of a file: nothing, a page, or a pointer to where the file is.

    Raises:
        FetchFailed: If so; ``start`` is how the content begins.
    """
    suffix = PurePosixPath(unquote(urlsplit(url).path)).suffix.lower()
    begins = start.lstrip(b"\xef\xbb\xbf \t\r\n")[:20].lower()
    if not start:
        found = "nothing"
    elif start.startswith(LFS_POINTER):
        found = "a pointer of Git LFS"
    elif begins.startswith((b"<!doctype html", b"<html")) and suffix not in PAGES:
        found = "a page"
    else:
        return
    raise FetchFailed(f"{url} gave {found} in place of {suffix or 'a file'}")


def local_files(task: Task) -> list[str]:
    """Return the files of this host that a task uploads."""
    uploads = [step for step in task_steps(task) if step["type"] == "upload_file"]
    return [file["local_path"] for step in uploads for file in step["parameters"]["files"]]


def task_urls(task: Task) -> list[str]:
    """Return the URLs of the files that a task downloads for its set-up or its scoring."""
    urls: list[Any] = []
    for step in task_steps(task):
        if step["type"] == "download":
            urls += [file.get("url") for file in step.get("parameters", {}).get("files", ())]
        elif step["type"] == "update_browse_history":
            urls.append(EMPTY_HISTORY_URL)
    for getter in task_getters(task):
        if getter["type"] == "cloud_file":
            paths = getter.get("path", ())
            urls += [paths] if isinstance(paths, str) else paths
    return list(dict.fromkeys(url for url in urls if isinstance(url, str)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DesktopAddress:
    """Addresses, screen size and passwords of one desktop.

    Attributes:
        server_url: Of the server in the desktop, ``http://host:port``.
        chromium_url: Of Chrome's debugging port, if it is published.
        vlc_url: Of VLC's web interface, if it is published.
        width: Pixels.
        height: Pixels.
        password: Of the desktop's user, for ``{CLIENT_PASSWORD}``.
        token: That the server wants; "" for none.
    """

    server_url: str
    chromium_url: str | None = None
    vlc_url: str | None = None
    width: int = 1920
    height: int = 1080
    password: str = "password"
    token: str = field(default="", repr=False)

    def expand_placeholders(self, command: str | Sequence[str]) -> str | list[str]:
        """Return a command with OSWorld's placeholders replaced."""
        if not isinstance(command, str):
            return [str(self.expand_placeholders(part)) for part in command]
        values = {
            "CLIENT_PASSWORD": self.password,
            "SCREEN_WIDTH_HALF": self.width // 2,
            "SCREEN_HEIGHT_HALF": self.height // 2,
            "SCREEN_WIDTH": self.width,
            "SCREEN_HEIGHT": self.height,
        }
        for name, value in values.items():
            command = command.replace(f"{{{name}}}", str(value))
        return command


class TaskFolder:
    """The files of one attempt."""

    def __init__(self, path: Path, *, address: DesktopAddress, downloads: Downloads) -> None:
        self.path = path
        self.address = address
        self.downloads = downloads
        self._separate_folders: list[Path] = []

    def separate_folder(self) -> TaskFolder:
        """Return a new folder beside this one: no file of it meets a file of a step, or of another getter."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._separate_folders.append(Path(tempfile.mkdtemp(prefix=f"{self.path.name}-", dir=self.path.parent)))
        return TaskFolder(self._separate_folders[-1], address=self.address, downloads=self.downloads)

    async def remove_separate_folders(self) -> None:
        """Remove the folders that ``separate_folder`` made."""
        while self._separate_folders:
            await asyncio.to_thread(shutil.rmtree, self._separate_folders.pop(), ignore_errors=True)

    def inside(self, name: str) -> Path:
        """Return the path of a file of the folder.

        Raises:
            TaskFileError: If the name leads out of the folder.
        """
        check_name(name)
        path = self.path / name
        if not path.resolve().is_relative_to(self.path.resolve()):
            raise TaskFileError(f"found the file name {name!r}, whose links lead out of the task's folder")
        return path

    async def write(self, name: str, data: bytes) -> Path:
        path = self.inside(name)
        await asyncio.to_thread(_write, path, data)
        return path

    async def take(self, files: Path) -> None:
        """Begin with copies of these files, as the same set-up would make them."""
        await asyncio.to_thread(shutil.copytree, files, self.path, dirs_exist_ok=True)

    async def fetch(self, url: str, name: str) -> Path:
        """Put what is behind a URL into the folder, in place of what lies there, and return its path.

        Raises:
            FetchFailed: If it could not be fetched.
        """
        path = self.inside(name)
        found = await self.downloads.fetch(url)
        # A copy of its own: some metrics look at the files beside it, or write there.
        await asyncio.to_thread(_copy, found, path)
        return path


def check_name(name: str) -> None:
    """Refuse a file name that leads out of the task's folder.

    Raises:
        TaskFileError: If it does.
    """
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    bad = not name or "\0" in name or posix.is_absolute() or bool(windows.drive) or "\\" in name
    if bad or ".." in posix.parts or str(posix) == ".":
        raise TaskFileError(f"found the file name {name!r}, wanted one inside the task's folder: no '..', no '/' first")
    if len(name) > 1024 or any(len(part.encode(errors="backslashreplace")) > 255 for part in posix.parts):
        raise TaskFileError(f"found the file name {name[:300]!r}, wanted one of at most 255 bytes a folder")
    if any("\ud800" <= letter <= "\udfff" for letter in name):
        raise TaskFileError(f"found the file name {name!r}, wanted text")


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Never through a link: what lies there may come from an archive of the desktop.
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def _copy(source: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # never through a link
    shutil.copyfile(source, path)
