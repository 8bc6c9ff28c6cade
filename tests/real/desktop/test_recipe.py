from __future__ import annotations

import io
import json
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from dartsim.config.schema import DesktopConfig, DockerHostConfig
from dartsim.core.errors import ConfigError
from dartsim.real.desktop import desktop_spec, images, skeleton
from dartsim.real.desktop.images import DEFAULT_MIRROR, mirror, to_tar, with_parents
from dartsim.real.desktop.recipe import PACKAGES, USER_ID, Entry, changes, digest_of, own_entries


def test_every_file_of_the_recipe_is_in_the_image() -> None:
    paths = {entry.path for entry in own_entries()}
    here = Path(images.__file__).parent
    for server in (here / "server").glob("*.py"):
        assert f"/opt/dartsim/dartsim/real/desktop/server/{server.name}" in paths
    assert {"/opt/dartsim/start", "/opt/dartsim/panel.py", "/opt/dartsim/bin/xdg-open"} <= paths
    # The package's own first file would import what the container does not have.
    assert "/opt/dartsim/dartsim/real/desktop/__init__.py" not in paths


def test_all_of_the_home_folder_is_the_users() -> None:
    below = [entry for entry in with_parents(own_entries()) if entry.path.startswith("/home/user")]
    assert len(below) > 5
    assert {entry.owner for entry in below} == {USER_ID}


def test_the_name_changes_with_anything_in_the_recipe() -> None:
    entries = own_entries()
    name = digest_of(entries, debian=PACKAGES)
    assert name == digest_of(list(reversed(entries)), debian=PACKAGES)
    assert name != digest_of(entries, debian=PACKAGES[1:])
    start = next(entry for entry in entries if entry.path == "/opt/dartsim/start")
    changed = [replace(entry, data=b"#!/bin/sh\n") if entry is start else entry for entry in entries]
    assert name != digest_of(changed, debian=PACKAGES)
    assert name != digest_of([replace(entry, mode=0o600) for entry in entries], debian=PACKAGES)


def test_full_images_have_names_without_asking_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skeleton.shutil, "which", lambda *_, **__: None)
    assert images.image_name("full").startswith("dartsim/desktop:full-")


def test_a_tar_is_the_same_every_time_and_has_parents_first() -> None:
    entries = [Entry("/opt/a/b", b"text", mode=0o644), Entry("/bin", link="usr/bin"), Entry("/opt/a", owner=7)]
    assert to_tar(entries) == to_tar(list(reversed(entries)))
    with tarfile.open(fileobj=io.BytesIO(to_tar(entries))) as tar:
        assert tar.getnames() == ["bin", "opt", "opt/a", "opt/a/b"]
        assert tar.getmember("bin").linkname == "usr/bin"
        assert tar.getmember("opt/a").uid == 7
        assert tar.extractfile("opt/a/b").read() == b"text"


def test_of_two_entries_with_one_path_the_last_wins() -> None:
    assert [entry.data for entry in with_parents([Entry("/a", b"old"), Entry("/a", b"new")])] == [b"new"]


def test_missing_packages_are_named_with_the_command_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skeleton.shutil, "which", lambda name, **_: None if name == "openbox" else f"/usr/bin/{name}")
    with pytest.raises(ConfigError, match=r"openbox.*apt-get install .*xvfb.*or build the full image"):
        skeleton.machine_entries()


def test_every_program_that_is_looked_for_belongs_to_a_listed_package() -> None:
    assert set(skeleton._NEEDED.values()) <= set(PACKAGES)
    assert len(set(PACKAGES)) == len(PACKAGES)


def test_the_user_of_the_image_is_plain() -> None:
    assert f"USER {USER_ID}:{USER_ID}" in changes()
    entrypoint = next(line for line in changes() if line.startswith("ENTRYPOINT"))
    assert json.loads(entrypoint.removeprefix("ENTRYPOINT ")) == ["/usr/bin/tini", "-g", "--", "/opt/dartsim/start"]


def test_a_desktop_runs_without_capabilities_within_limits() -> None:
    spec = desktop_spec(DesktopConfig(image="x", width=320, height=240, memory_mib=300), vnc=True)
    assert spec.cap_drop == ("ALL",)
    assert spec.security_opt == ("no-new-privileges",)
    assert spec.volumes == {"/usr": "/usr:ro"}
    assert spec.ports == {"server": 5000, "vnc": 8006}
    assert (spec.environment["WIDTH"], spec.environment["HEIGHT"], spec.environment["VNC"]) == ("320", "240", "1")
    assert spec.limits.memory_mib == 300


def test_a_full_desktop_mounts_nothing_of_the_machine() -> None:
    spec = desktop_spec(DesktopConfig(variant="full"))
    assert not spec.volumes
    assert spec.image == images.image_name("full")
    assert spec.ports == {"server": 5000}


def test_a_screen_too_small_for_a_window_manager_is_refused() -> None:
    with pytest.raises(ValueError, match="greater than or equal to 96"):
        DesktopConfig(width=32, height=240)


async def test_a_skeleton_is_not_built_for_another_machine() -> None:
    with pytest.raises(ConfigError, match="needs this machine's /usr"):
        await images.build("skeleton", DockerHostConfig(url="ssh://elsewhere"))


def test_the_mirror_is_the_machines_own(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "http://a.example/security bookworm-security Debian\nhttp://a.example/debian/ bookworm Debian\n"
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, told))
    assert mirror() == "http://a.example/debian"
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, "x sid Other\n"))
    assert mirror() == DEFAULT_MIRROR
