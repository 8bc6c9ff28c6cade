"""A real engine, where there is one: what only it can show."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from operator import methodcaller
from pathlib import Path

import pytest

from dartsim.config.schema import DockerHostConfig
from dartsim.real.containers import (
    ContainerLimits,
    ContainerSpec,
    DockerHost,
)
from dartsim.real.containers.errors import (
    CallRefused,
    ContainerExited,
    ContainerFault,
    ContainerGone,
    ContainerStartFailed,
    EngineMissing,
    ImageMissing,
    OutOfResources,
)

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

IMAGE = "dartsim-test:busybox"
WEB = ContainerSpec(image=IMAGE, command=("httpd", "-f", "-p", "5000"), ports={"server": 5000})
SLEEP = ContainerSpec(image=IMAGE, command=("sleep", "1000"), ports={"server": 5000, "vnc": 8006})


def with_label(client, label: str) -> list[str]:
    return [c["Names"][0] for c in client.api.containers(all=True, filters={"label": [label]})]


def of(client, host: DockerHost) -> list[str]:
    return with_label(client, f"dartsim.owner={host.owner}")


async def first_line(address: str, port: int) -> bytes:
    """Return the first line of a reply; where the port is published already and nobody listens yet, ask again."""
    async with asyncio.timeout(20):
        while True:
            reader, writer = await asyncio.open_connection(address, port)
            try:
                writer.write(b"GET / HTTP/1.0\r\n\r\n")
                if line := await reader.readline():
                    return line
            except ConnectionResetError:
                await asyncio.sleep(0.05)
            finally:
                writer.close()


async def test_a_container_serves_at_its_ports_within_its_limits(real_engine):
    spec = ContainerSpec(
        image=IMAGE,
        command=WEB.command,
        ports=WEB.ports,
        cap_drop=("ALL",),
        security_opt=("no-new-privileges",),
        user="1000:1000",
        init=True,
        read_only=True,
        tmpfs={"/tmp": "size=1m"},
        limits=ContainerLimits(memory_mib=32, cpus=0.5, pids=20),
    )

    async with DockerHost(run="demo") as host:
        container = await host.start(spec, slot=7)
        assert b"404" in await first_line(container.host, container.ports["server"])
        attributes = real_engine.api.inspect_container(container.id)
        limits = attributes["HostConfig"]
        assert limits["Memory"] == limits["MemorySwap"] == 32 * 2**20
        assert (limits["NanoCpus"], limits["PidsLimit"]) == (500_000_000, 20)
        assert limits["ReadonlyRootfs"]
        (binding,) = attributes["NetworkSettings"]["Ports"]["5000/tcp"]
        assert binding["HostIp"] == "127.0.0.1"
        labels = attributes["Config"]["Labels"]
        assert labels["dartsim.owner"] == str(host.owner)
        assert (labels["dartsim.run"], labels["dartsim.slot"]) == ("demo", "7")
        code, output = await container.exec(["cat", "/proc/self/status"])
        assert code == 0
        assert b"CapEff:\t0000000000000000" in output
    assert not of(real_engine, host)


async def start_until_refused(host: DockerHost, command: tuple[str, ...]):
    """Start what ends at once until it is seen dead: a start may look a moment too early."""
    for slot in range(20):
        await (await host.start(ContainerSpec(image=IMAGE, command=command), slot=slot)).remove()


async def test_faults_of_a_real_engine_have_their_causes(real_engine):
    async with DockerHost() as host:
        with pytest.raises(ImageMissing):
            await host.start(ContainerSpec(image="dartsim-test:absent"), slot=0)
        with pytest.raises(ContainerExited, match=r"exit code 3.*last words"):
            await start_until_refused(host, ("sh", "-c", "echo last words; exit 3"))
        with pytest.raises(ContainerStartFailed) as caught:
            await host.start(ContainerSpec(image=IMAGE, command=("absent",)), slot=0)
        assert caught.value.cause == "engine_refused"
        with pytest.raises(ContainerStartFailed) as caught:
            await host.start(ContainerSpec(image=IMAGE, devices=("/dev/absent",), command=("sleep", "9")), slot=0)
        assert caught.value.cause == "device_missing"
        assert (host.num_held, of(real_engine, host)) == (0, [])

        container = await host.start(SLEEP, slot=0)
        await container.engine.call(container.id, methodcaller("pause"))
        with pytest.raises(CallRefused):
            await container.exec(["sh"])
        await container.engine.call(container.id, methodcaller("unpause"))
        await container.kill()
        assert (await container.state())["ExitCode"] == 137
        real_engine.api.remove_container(container.id, force=True)
        with pytest.raises(ContainerGone):
            await container.state()


async def test_cancelled_starts_leave_nothing(real_engine):
    """Given up at twelve moments of a start, from the line to the ports."""

    async def give_up(host: DockerHost, slot: int):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.03 * slot):
                await host.start(SLEEP, slot=slot)  # those that are quick enough are swept at the end

    async with DockerHost(DockerHostConfig(concurrent_starts=2)) as host:
        await asyncio.gather(*(give_up(host, slot) for slot in range(12)))
        assert len(of(real_engine, host)) == host.num_held
    assert not of(real_engine, host)


CHILD = """
import asyncio, sys
from dartsim.real.containers import ContainerSpec, DockerHost

async def main():
    host = DockerHost(run="killed")
    spec = ContainerSpec(image=sys.argv[1], command=("sleep", "1000"), ports={"server": 5000})
    await asyncio.gather(*(host.start(spec, slot=slot) for slot in range(2)))
    print(host.owner, flush=True)
    await asyncio.gather(*(host.start(spec, slot=slot) for slot in range(2, 9)))

asyncio.run(main())
"""


def test_what_a_killed_process_left_is_reaped_and_nothing_else(real_engine):
    theirs = real_engine.containers.create(IMAGE, command=["sleep", "1000"], labels={"shop": "db"})
    root = Path(__file__).resolve().parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, IMAGE], stdout=subprocess.PIPE, text=True, env=environment, cwd=root
    )
    assert child.stdout is not None
    owner = child.stdout.readline().strip()

    async def while_it_lives(host: DockerHost):
        await host.reap()
        assert len(with_label(real_engine, f"dartsim.owner={owner}")) >= 2

    async def once_it_is_dead(host: DockerHost):
        mine = await host.start(SLEEP, slot=0)
        # The engine may still be making what the dead process asked for last: it is quiet once ten looks found nothing.
        quiet = 0
        async with asyncio.timeout(60):
            while quiet < 10:
                quiet = 0 if with_label(real_engine, f"dartsim.owner={owner}") else quiet + 1
                await host.reap()
                await asyncio.sleep(0.1)
        assert with_label(real_engine, f"dartsim.owner={owner}") == []
        assert of(real_engine, host) == [f"/{mine.name}"]

    async def main():
        async with DockerHost() as host:
            await while_it_lives(host)
            child.send_signal(signal.SIGKILL)
            child.wait()
            await once_it_is_dead(host)

    try:
        asyncio.run(main())
        assert real_engine.api.inspect_container(theirs.id)
        assert not real_engine.volumes.list(filters={"label": [f"dartsim.owner={owner}"]})
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        theirs.remove(force=True)


@pytest.fixture
def ssh_engine(real_engine, monkeypatch) -> Iterator[str]:
    """The engine behind an ssh server of the test's own, on the loopback."""
    pytest.importorskip("paramiko", reason="docker[ssh] is not installed")
    server = shutil.which("sshd", path="/usr/sbin:/usr/bin")
    if server is None or shutil.which("ssh-keygen") is None or shutil.which("docker") is None or os.geteuid() != 0:
        pytest.skip("no sshd, ssh-keygen and docker program, or not root")
    with tempfile.TemporaryDirectory(prefix="sshd-") as name, socket.create_server(("127.0.0.1", 0)) as free:
        folder, port = Path(name), free.getsockname()[1]
        free.close()
        _write_ssh(folder, port, os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock"))
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd wants it, empty
        sshd = subprocess.Popen([server, "-D", "-e", "-f", folder / "sshd_config"], stderr=subprocess.DEVNULL)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        monkeypatch.delenv("DOCKER_HOST", raising=False)
        try:
            _wait_for_port(port)
            yield f"ssh://root@127.0.0.1:{port}"
        finally:
            sshd.terminate()
            sshd.wait()


def _write_ssh(folder: Path, port: int, docker_host: str):
    for key in ("host", "user"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key]
        subprocess.run(command, check=True)
    (folder / "sshd_config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\nPidFile none\n"
        f"StrictModes no\nPermitRootLogin prohibit-password\nUsePAM no\nSetEnv DOCKER_HOST={docker_host}\n"
    )
    options = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    ssh = folder / "ssh"
    ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F /dev/null {options} -i {folder}/user "$@"\n')
    ssh.chmod(0o755)


def _wait_for_port(port: int):
    for _ in range(100):
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), 5):
            return
        threading.Event().wait(0.05)
    raise TimeoutError(f"nobody listens on port {port}")


SSH_CHILD = """
import asyncio, sys
from dartsim.config.schema import DockerHostConfig
from dartsim.real.containers import ContainerSpec, DockerHost

async def main():
    async with DockerHost(DockerHostConfig(url=sys.argv[1])) as host:
        spec = ContainerSpec(image=sys.argv[2], command=("sleep", "1000"), ports={"server": 5000})
        container = await host.start(spec, slot=0)
        print(host.owner, container.host, await container.exec(["sh", "-c", "echo inside"]), host.num_held)

asyncio.run(main())
"""


def test_an_engine_behind_ssh(ssh_engine, real_engine):
    """In a process of its own: the docker package leaves the processes of its connections to the garbage collector."""
    root = Path(__file__).resolve().parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", SSH_CHILD, ssh_engine, IMAGE]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    owner, rest = done.stdout.strip().split(" ", 1)
    assert rest == "127.0.0.1 (0, b'inside\\n') 1"
    assert with_label(real_engine, f"dartsim.owner={owner}") == []


class PrivateEngine:
    """An engine of the test's own, to be stopped and started again.

    It has a network namespace of its own, because an engine without a bridge deletes the one it finds, whosoever it is;
    and a mount namespace, because it leaves its data folder mounted.
    """

    def __init__(self, folder: Path, disk_mib: int | None = None):
        self.folder = folder
        self.disk_mib = disk_mib
        self.url = f"unix://{folder}/docker.sock"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self):
        places = {"data-root": "data", "exec-root": "exec", "pidfile": "pid"}
        quiet = ("--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--bridge=none")
        dockerd = ["dockerd", "-H", self.url, *quiet, *(f"--{k}={self.folder / v}" for k, v in places.items())]
        command = ["unshare", "--net", "--mount"]
        if self.disk_mib is not None:  # a disk of its own, which ends with the process
            (self.folder / "data").mkdir(exist_ok=True)
            mount = f"mount -t tmpfs -o size={self.disk_mib}m none {self.folder / 'data'}"
            command += ["sh", "-c", f'{mount} && exec "$@"', "sh"]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen([*command, *dockerd], stdout=log, stderr=log)

    async def answers(self):
        async with asyncio.timeout(30):
            while True:
                async with DockerHost(DockerHostConfig(url=self.url)) as host:
                    try:
                        await host.info()
                        return
                    except EngineMissing:
                        await asyncio.sleep(0.1)

    def stop(self):
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            self._process = None


@pytest.fixture
def private_engine(request, real_engine) -> Iterator[PrivateEngine]:
    if shutil.which("dockerd") is None or shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("no dockerd and unshare to start one with, or not root")
    # A short path: that of a Unix socket has 107 characters at most.
    with tempfile.TemporaryDirectory(prefix="dockerd-") as folder:
        engine = PrivateEngine(Path(folder), getattr(request, "param", None))
        engine.start()
        yield engine
        engine.stop()


async def give_image(private_engine: PrivateEngine, real_engine) -> None:
    """Wait until an engine answers, and load the image that containers here have."""
    from dartsim.real.containers.engine import connect

    await private_engine.answers()
    client = connect(DockerHostConfig(url=private_engine.url))
    client.images.load(b"".join(real_engine.images.get(IMAGE).save(named=True)))
    client.close()


@pytest.mark.parametrize("private_engine", [64], indirect=True)
async def test_an_engine_whose_disk_is_full_starts_nothing_until_there_is_space(private_engine, real_engine):
    await give_image(private_engine, real_engine)
    fill = ("sh", "-c", "cat /dev/zero >/fill; touch /dev/shm/full; sleep 1000")
    async with DockerHost(DockerHostConfig(url=private_engine.url, max_desktops=4)) as host:
        full = await host.start(ContainerSpec(image=IMAGE, command=fill, network="none", init=True), slot=0)
        await full.exec(["sh", "-c", "until [ -e /dev/shm/full ]; do sleep 0.1; done"])
        plain = ContainerSpec(image=IMAGE, command=("sleep", "1000"), network="none", init=True)
        with pytest.raises(OutOfResources, match="no space left on device"):
            await host.start(plain, slot=1)
        await full.remove()
        async with asyncio.timeout(30):  # files may go a moment after their container
            while host.num_held == 0:
                with contextlib.suppress(OutOfResources):
                    await host.start(plain, slot=1)


async def test_an_engine_that_restarts_costs_its_containers_and_no_more(private_engine, real_engine):
    plain = ContainerSpec(image=IMAGE, command=("sleep", "1000"), network="none", init=True)
    await give_image(private_engine, real_engine)
    async with DockerHost(DockerHostConfig(url=private_engine.url, max_desktops=4)) as host:
        container = await host.start(plain, slot=0)
        await asyncio.to_thread(private_engine.stop)
        with pytest.raises(EngineMissing):
            await host.start(plain, slot=1)
        with pytest.raises(ContainerFault) as caught:
            await container.remove()
        assert caught.value.cause == "engine_lost"
        assert host.num_held == 1, "it comes back with the engine, if only as a dead one"
        private_engine.start()
        await private_engine.answers()
        assert (await container.state())["Status"] == "exited"
        again = await host.start(plain, slot=0)
        await host.retry_lost()
        assert host.num_held == 1
        assert (await again.state())["Status"] == "running"
    async with DockerHost(DockerHostConfig(url=private_engine.url)) as host:
        assert (await host.info()).containers == 0
