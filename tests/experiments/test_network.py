"""Hosts that are network namespaces: delay, partitions, and that nothing of them stays."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from experiments.network import Network, NoNetwork

STANDIN = Path(__file__).parents[1] / "real" / "osworld" / "standin.py"


@pytest.fixture
def network():
    with ExitStack() as stack:
        try:
            made = stack.enter_context(Network(["driver", "far"]))
        except NoNetwork as missing:
            pytest.skip(str(missing))
        yield made


def listening(network):
    """A socket that listens on the other host."""
    return network.call("far", lambda: socket.create_server((network.address("far"), 0)))


def connects(network, server, seconds=0.5):
    def connect():
        try:
            socket.create_connection(server.getsockname(), seconds).close()
        except TimeoutError:
            return False
        return True

    return network.call("driver", connect)


def test_a_cut_swallows_packets_without_a_word_until_it_is_healed(network):
    with listening(network) as server:
        assert connects(network, server, seconds=10.0)
        for one_way in (("driver", "far"), ("far", "driver")):
            network.cut(*one_way, one_way=True)
            assert not connects(network, server)
        network.heal()
        assert connects(network, server, seconds=10.0)
        network.set(loss=1.0)
        assert not connects(network, server)
        network.set(delay_seconds=0.3)
        assert not connects(network, server), "a handshake takes two delays"
        network.set()
        assert connects(network, server, seconds=10.0)


def test_a_host_has_the_wire_and_its_own_loopback_alone(network):
    code = "import socket; print(*(name for _, name in socket.if_nameindex()))"
    with network.start("far", [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as asked:
        assert asked.stdout.read().split() == ["lo", "wire"]
    assert "wire" not in [name for _, name in socket.if_nameindex()]


def test_nothing_is_left_of_a_network_whose_owner_was_killed(network):
    code = (
        "import sys, time; from experiments.network import Network; n = Network(['a']).__enter__(); "
        "p = n.start('a', ['sleep', '600']); print(p.pid, flush=True); time.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as owner:
        sleeper = int(owner.stdout.readline())
        descriptor = os.pidfd_open(sleeper)
        owner.kill()
        assert select.select([descriptor], [], [], 30.0)[0], "it lives on"
        os.close(descriptor)


def test_an_action_whose_answer_is_lost_is_done_once_and_one_that_was_never_sent_is_not_done(network, module_of):
    pytest.importorskip("httpx")
    pytest.importorskip("PIL")
    from dartsim.real.osworld.client import VmClient
    from dartsim.real.osworld.errors import ActionUncertain, HostUnreachable
    from dartsim.real.osworld.pyautogui_code import command
    from dartsim.real.osworld.transport import Timeouts

    standin = module_of(STANDIN)
    vm = standin.Vm()
    limits = Timeouts(connect=1.5, execute=2.0)

    async def one_action(server):
        async with VmClient(server.base_url, timeouts=limits, server=standin.PATIENT) as client:
            await client.execute(command("pyautogui.click(30, 40)"))

    async def main():
        with listening(network) as far:
            async with standin.Sockets(vm, far) as server:
                vm.on_actions = lambda _: network.cut("far", "driver", one_way=True)
                with pytest.raises(ActionUncertain, match=r"10\.77\.0\.2.*not sent again"):
                    await one_action(server)
                network.cut("driver", "far")
                with pytest.raises(HostUnreachable, match=r"10\.77\.0\.2.*no connection"):
                    await one_action(server)
                network.heal()
                await asyncio.sleep(1.5)  # what the kernel sends again would arrive
                assert len(vm.actions) == 1

    network.call("driver", lambda: asyncio.run(main()))
