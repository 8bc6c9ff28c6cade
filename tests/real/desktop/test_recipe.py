import errno
import io
import os
import tarfile
from dataclasses import replace
from types import SimpleNamespace

import pytest

from dartsim.config.schema import DesktopConfig, DockerHostConfig
from dartsim.core.errors import ConfigError
from dartsim.real.desktop import desktop_spec, images, skeleton
from dartsim.real.desktop.images import to_tar, with_parents
from dartsim.real.desktop.recipe import PACKAGES, USER_ID, Entry, digest_of, own_entries


def test_all_of_the_home_folder_is_the_users():
    below = [entry for entry in with_parents(own_entries("skeleton")) if entry.path.startswith("/home/user")]
    assert len(below) > 5
    assert {entry.owner for entry in below} == {USER_ID}


def test_the_name_changes_with_anything_in_the_recipe():
    entries = own_entries("skeleton")
    name = digest_of(entries, debian=PACKAGES)
    assert name == digest_of(list(reversed(entries)), debian=PACKAGES)
    assert name != digest_of(entries, debian=PACKAGES[1:])
    start = next(entry for entry in entries if entry.path == "/opt/dartsim/start")
    changed = [replace(entry, data=b"#!/bin/sh\n") if entry is start else entry for entry in entries]
    assert name != digest_of(changed, debian=PACKAGES)
    assert name != digest_of([replace(entry, mode=0o600) for entry in entries], debian=PACKAGES)


def test_a_tar_is_the_same_every_time_and_has_parents_first():
    entries = [Entry("/opt/a/b", b"text", mode=0o644), Entry("/bin", link="usr/bin"), Entry("/opt/a", owner=7)]
    assert to_tar(entries) == to_tar(list(reversed(entries)))
    with tarfile.open(fileobj=io.BytesIO(to_tar(entries))) as tar:
        assert tar.getnames() == ["bin", "opt", "opt/a", "opt/a/b"]
        assert tar.getmember("bin").linkname == "usr/bin"
        assert tar.getmember("opt/a").uid == 7
        assert tar.extractfile("opt/a/b").read() == b"text"


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setattr(skeleton.shutil, "which", lambda name, **_: None if name == "openbox" else f"/usr/bin/{name}")
    with pytest.raises(ConfigError, match="openbox"):
        skeleton.machine_entries()


def test_a_desktop_runs_without_capabilities_within_limits():
    spec = desktop_spec(DesktopConfig(image="x", width=320, height=240, memory_mib=300), vnc=True)
    assert spec.cap_drop == ("ALL",)
    assert spec.security_opt == ("no-new-privileges",)
    assert spec.volumes == {"/usr": "/usr:ro"}
    assert spec.ports == {"server": 5000, "vnc": 8006}
    assert (spec.environment["WIDTH"], spec.environment["HEIGHT"], spec.environment["VNC"]) == ("320", "240", "1")
    assert spec.limits.memory_mib == 300


def test_a_desktop_with_a_debian_of_its_own_mounts_nothing_of_the_machine():
    spec = desktop_spec(DesktopConfig(variant="apps"))
    assert not spec.volumes
    assert spec.image == images.image_name("apps")


async def test_a_skeleton_is_not_built_for_another_machine():
    with pytest.raises(ConfigError, match="/usr"):
        await images.build("skeleton", DockerHostConfig(url="ssh://elsewhere"))


async def test_a_build_for_which_no_space_is_left_says_how_much_it_takes(monkeypatch):
    class Client:
        api = SimpleNamespace(images=lambda name: [])
        close = staticmethod(lambda: None)

    def fill(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(images, "connect", lambda _: Client())
    monkeypatch.setattr(images, "_make_apps", fill)
    with pytest.raises(ConfigError, match="10 GB"):
        await images.build("apps")
