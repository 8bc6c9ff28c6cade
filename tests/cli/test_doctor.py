"""``dartsim doctor``: says what works, what is missing, what to type."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from dartsim.cli import doctor
from dartsim.cli.service_checks import CheckState
from dartsim.core.install import install_command


@pytest.fixture(autouse=True)
def _no_engine(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")


def test_json_says_what_works_and_the_exit_code_is_the_basics(capsys):
    doctor.doctor(json_file="-")
    facts = json.loads(capsys.readouterr().out)
    assert facts["works"]["simulated runs"] is True
    assert facts["works"]["real desktops"] is False
    checks = {check["name"]: check for check in facts["checks"]}
    assert set(checks) >= {name for needs in doctor.NEEDS.values() for name in needs}
    assert checks["engine"]["state"] == "missing"
    assert checks["engine"]["fix"]
    assert all(check["fix"] for check in checks.values() if check["state"] != "ok")


@pytest.mark.parametrize(("extra", "looked_for"), [("train", doctor.TRAIN), ("real", doctor.REAL)])
def test_every_package_of_an_extra_is_looked_for(extra, looked_for):
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [re.split(r"[\[<>=]", one)[0] for one in project["optional-dependencies"][extra]]
    assert sorted(looked_for) == sorted(wanted)


def test_without_the_docker_package_the_engine_is_missing_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "docker", None)
    check = doctor.check_engine()
    assert (check.state, check.fix) == (CheckState.MISSING, install_command("real"))


def test_the_table_shows_every_check_and_every_use(capsys):
    doctor.doctor(json_file=None)
    shown = capsys.readouterr().out
    for word in ("engine", "kvm", "memory", "train packages", "simulated runs", "official OSWorld VMs"):
        assert word in shown


def test_without_the_basics_the_exit_code_is_1(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "BASICS", ("a-package-that-is-not-there",))
    with pytest.raises(typer.Exit) as ended:
        doctor.doctor(json_file="-")
    assert ended.value.exit_code == 1
    assert json.loads(capsys.readouterr().out)["works"]["simulated runs"] is False


def test_an_old_python_is_named():
    assert doctor.check_python((3, 10)).state is CheckState.MISSING
    assert doctor.check_python((3, 13)).state is CheckState.OK


def test_missing_packages_are_named_with_the_command():
    check = doctor.check_packages("p", ("rich", "absent-a", "absent-b"), "pip install p")
    assert check.state is CheckState.MISSING
    assert check.found.startswith("no absent-a, absent-b; rich ")
    assert check.fix == "pip install p"


@pytest.mark.parametrize(("check", "enough", "little"), [("check_memory", 16.0, 0.5), ("check_disk", 40.0, 0.5)])
def test_memory_and_disk_have_a_least_amount(check, enough, little):
    assert getattr(doctor, check)(enough).state is CheckState.OK
    assert getattr(doctor, check)(little).state is CheckState.MISSING


def test_a_gpu_counts_if_torch_can_use_it(monkeypatch):
    assert doctor.check_gpu(lambda: None).state is CheckState.OPTIONAL
    monkeypatch.setattr(doctor, "installed", lambda _: "2.13.0")
    assert doctor.check_gpu(lambda: "H200, 143771 MiB").state is CheckState.OK
    monkeypatch.setattr(doctor, "installed", lambda _: "2.13.0+cpu")
    assert doctor.check_gpu(lambda: "H200, 143771 MiB").state is CheckState.OPTIONAL


@pytest.mark.docker
def test_an_engine_is_described(monkeypatch):
    monkeypatch.undo()
    check = doctor.check_engine()
    if check.state is not CheckState.OK:
        pytest.skip(check.found)
    assert "API" in check.found
    assert "cgroup v" in check.found


def test_nothing_heavy_is_imported():
    heavy = "docker torch transformers requests"
    code = f"import sys, dartsim.cli.app; sys.exit([m for m in {heavy.split()!r} if m in sys.modules] or None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
