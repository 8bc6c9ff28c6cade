"""KVM is used where it accelerates, not where its file merely exists."""

import os
from pathlib import Path

import pytest

from dartsim.config.schema import DesktopConfig
from dartsim.real.containers.official import Kvm, configured_kvm, kvm_state

KVM = Path("/dev/kvm")


def modules(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / "module" / name).mkdir(parents=True)
    return folder / "module"


@pytest.mark.parametrize(
    ("loaded", "device", "local", "why"),
    [
        (("kvm", "kvm_pvm"), True, True, "kvm_pvm"),
        (("kvm", "kvm_intel"), True, True, "no KVM device"),
        (("kvm_amd",), False, True, "does not exist"),
        (("kvm_intel",), True, False, "another machine"),
    ],
)
def test_a_module_or_a_file_alone_is_not_enough(tmp_path, loaded, device, local, why):
    if device:
        (tmp_path / "kvm").touch()
    state = kvm_state(Kvm.AUTO, modules=modules(tmp_path, *loaded), device=tmp_path / "kvm", local=local)
    assert not state.use
    assert why in state.why


@pytest.mark.skipif(os.geteuid() == 0, reason="root opens everything")
def test_a_device_that_does_not_open_is_not_enough(tmp_path):
    device = tmp_path / "kvm"
    device.touch(mode=0)
    state = kvm_state(Kvm.AUTO, modules=modules(tmp_path, "kvm_amd"), device=device)
    assert not state.use
    assert "does not open" in state.why


@pytest.mark.skipif(not os.access(KVM, os.R_OK | os.W_OK), reason="no /dev/kvm that opens")
def test_a_vendors_module_and_a_device_that_answers_are_enough(tmp_path):
    assert kvm_state(Kvm.AUTO, modules=modules(tmp_path, "kvm_intel"), device=KVM).use
    assert not kvm_state(Kvm.AUTO, modules=modules(tmp_path / "other", "kvm_pvm"), device=KVM).use


def test_a_setting_needs_no_evidence(tmp_path):
    assert kvm_state(Kvm.ON, modules=tmp_path, device=tmp_path / "absent").use
    assert not kvm_state(Kvm.OFF).use


@pytest.mark.parametrize(("kvm", "use"), [("auto", False), ("on", True)])
def test_machines_of_an_engine_elsewhere_use_kvm_only_if_the_configuration_says_so(caplog, kvm, use):
    desktop = DesktopConfig(kvm=kvm, hosts={"far": {"url": "ssh://user@host"}})
    assert configured_kvm(desktop) is use
    assert ("desktop.kvm" in caplog.text) is not use
