"""Engines that cannot start desktops of the applications' image: the run says so, and no attempt gets a score."""

import json

import pytest

pytest.importorskip("docker")
pytest.importorskip("torch")

from docker.errors import APIError
from docker.models.containers import ContainerCollection

from dartsim.real.desktop import images

pytestmark = pytest.mark.docker

SETTINGS = ("--set", "desktop.variant=apps", "--set", "rollout.num_envs=1", "--set", "rollout.warm_envs=0")


def test_an_image_of_another_version_ends_the_run_at_once(dartsim, docker_engine, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(images, "image_name", lambda variant: f"dartsim/desktop:{variant}-000000000000")
    assert dartsim("run", "desktop", *SETTINGS, "--out", str(tmp_path / "run")) == 2
    message = " ".join(capsys.readouterr().err.split())  # the terminal's lines may end anywhere
    assert "has no image dartsim/desktop:apps-000000000000" in message
    assert "dartsim desktop build --variant apps" in message


@pytest.mark.slow
def test_an_engine_without_space_masks_every_attempt(dartsim, docker_engine, monkeypatch, tmp_path, desktop_image):
    create = ContainerCollection.create

    def full(self, image, *arguments, **options):
        if image == desktop_image:
            raise APIError("500", explanation="mkdir /var/lib/docker/overlay2/x: no space left on device")
        return create(self, image, *arguments, **options)

    monkeypatch.setattr(ContainerCollection, "create", full)
    settings = (*SETTINGS, "--set", f"desktop.image={desktop_image}", "--set", "run.hours=0.004")
    assert dartsim("run", "desktop", *settings, "--out", str(tmp_path / "run")) == 18
    figures = json.loads((tmp_path / "run/summary.json").read_text())
    assert figures["start_causes"]["out_of_resources"] > 0
    assert "no space left on device" in figures["fault_reasons"]["out_of_resources"]
    assert (figures["mean_reward"], figures["trained_trajectories"]) == (None, 0)
