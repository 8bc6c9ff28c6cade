"""What a run's desktops are started with."""

import pytest

from dartsim.config import load
from dartsim.real.containers import KvmState, official, plan


@pytest.mark.parametrize(
    ("url", "kvm", "local", "warns"),
    [
        ("unix:///run/docker.sock", "auto", True, False),
        ("ssh://user@host", "auto", False, True),
        ("ssh://user@host", "on", False, False),
    ],
)
def test_kvm_of_an_engine_on_another_machine_is_not_looked_for_here(monkeypatch, caplog, url, kvm, local, warns):
    asked = []

    def kvm_state(setting, *, local=True):
        asked.append(local)
        return KvmState(local, "as asked")

    monkeypatch.setattr(official, "kvm_state", kvm_state)
    config = load(
        "desktop",
        overrides=[
            "backend.desktops=osworld",
            "tasks.source=osworld",
            "tasks.folder=tasks",
            "desktop.disk=/data/Ubuntu.qcow2",
            f"desktop.kvm={kvm}",
            f"desktop.hosts.one.url={url}",
        ],
    )
    spec = plan.container_spec(config, look=False)
    assert asked == [local]
    assert bool(spec.devices) == local
    assert ('set desktop.kvm = "on"' in caplog.text) == warns
