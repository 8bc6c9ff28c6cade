"""``dartsim run`` with a Docker engine that cannot be used: one sentence, at once, and nothing on the disk."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from threading import Thread

import pytest

pytest.importorskip("docker", reason="needs the extra `real`")

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
ANSWERS = {
    "refused": None,
    "a page": HEAD + b"Content-Length: 13\r\n\r\n<html></html>",
    "a list": HEAD + b"Content-Length: 2\r\n\r\n[]",
    "an object": HEAD + b"Content-Length: 2\r\n\r\n{}",
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
}


def answer(listening, words):
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return  # closed
        with connection:
            connection.settimeout(5.0)
            if connection.recv(65536):  # else somebody only looks whether anything listens
                connection.sendall(words)


@pytest.mark.parametrize("what", ANSWERS)
def test_a_host_without_an_engine_ends_a_run_before_it_begins(dartsim, capsys, tmp_path, what):
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        if (words := ANSWERS[what]) is not None:
            listening.listen()
            thread = Thread(target=answer, args=(listening, words))
            thread.start()
            stack.callback(thread.join)
            stack.callback(listening.shutdown, socket.SHUT_RDWR)
        url = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        out = tmp_path / "run"
        sets = ("--set", f'desktop.hosts.far.url="{url}"', "--hours", "0.01", "--out", str(out))
        assert dartsim("run", "--backend", "desktop", *sets) == 1
    said = capsys.readouterr().err
    assert dartsim("desktop", "reap", "--host", url) == 1, "no port is asked for"
    assert f"no Docker engine answers at {url}" in " ".join(said.split())
    assert "Traceback" not in said
    assert said.count("no Docker engine") == 1
    assert not out.exists()


@pytest.mark.docker
def test_a_missing_image_ends_a_run_before_it_begins(dartsim, capsys, docker_engine, tmp_path):
    out = tmp_path / "run"
    assert dartsim("run", "--backend", "desktop", "--set", 'desktop.image="no-such:1"', "--out", str(out)) == 2
    assert "has no image no-such:1: fetch it with `docker pull no-such:1`" in " ".join(capsys.readouterr().err.split())
    assert not out.exists()
