"""KVM is used where it accelerates, not where its file merely exists."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dartsim.real.containers.official import Kvm, kvm_state

KVM = Path("/dev/kvm")


def modules(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / "module" / name).mkdir(parents=True)
    return folder / "module"


def test_a_file_that_merely_exists_is_not_enough(tmp_path):
    device = tmp_path / "kvm"
    device.touch()
    state = kvm_state(Kvm.AUTO, modules=modules(tmp_path, "kvm", "kvm_pvm"), device=device)
    assert not state.use
    assert "kvm_intel" in state.why
    assert "kvm_pvm" in state.why


def test_nor_with_a_vendors_module_if_it_is_no_kvm_device(tmp_path):
    device = tmp_path / "kvm"
    device.touch()
    state = kvm_state(Kvm.AUTO, modules=modules(tmp_path, "kvm", "kvm_intel"), device=device)
    assert not state.use
    assert "no KVM device" in state.why


def test_a_module_without_a_device_is_not_enough(tmp_path):
    state = kvm_state(Kvm.AUTO, modules=modules(tmp_path, "kvm_amd"), device=tmp_path / "absent")
    assert (state.use, state.why) == (False, f"kvm_amd is loaded, but {tmp_path / 'absent'} does not exist")


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


def test_another_machine_cannot_be_looked_at(tmp_path):
    state = kvm_state(Kvm.AUTO, modules=modules(tmp_path, "kvm_intel"), local=False)
    assert not state.use
    assert "another machine" in state.why
