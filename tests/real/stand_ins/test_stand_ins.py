"""Stand-ins for desktops, engines and ranks, behind the clients and the control plane that real ones have."""

import asyncio

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("aiohttp")

from dartsim.config import load
from dartsim.core.errors import ConfigError
from dartsim.core.png import decode_png
from dartsim.lab.virtual import with_settings
from dartsim.real.stand_ins.model import replies, write_stand_in
from dartsim.real.stand_ins.screens import BAND_ROWS, Screens
from dartsim.real.stand_ins.serving import stand_in
from dartsim.real.vlm import build
from dartsim.real.vlm.plan import vlm_config
from dartsim.run.execute import execute

SMALL = {
    "backend.desktops": "stand_in",
    "backend.workers": "stand_in",
    "backend.learner": "stand_in",
    "tasks.source": "generated",
    "tasks.folder": None,
    "tasks.do_nothing": "ignore",
    "desktop.width": 224,
    "desktop.height": 224,
    "desktop.wait_seconds": 0.1,
    "desktop.hosts": {},
    "rollout.num_envs": 4,
    "rollout.warm_envs": 0,
    "rollout.max_turns": 3,
    "curation.attempts.group_size": 2,
    "curation.batch.min_groups": 1,
    "curation.batch.max_groups": 2,
    "run.updates": 1,
    "run.hours": 0.03,
}


def test_screens_are_as_large_as_a_desktops_and_all_different():
    screens = Screens()
    found = [screens.png(number) for number in range(60)]
    assert len(set(found)) == 60
    assert min(map(len, found)) >= 300_000
    first, second = decode_png(found[0]), decode_png(found[27])
    assert first.shape == (1080, 1920, 3)
    assert np.array_equal(first[BAND_ROWS:], second[BAND_ROWS:])
    assert (first[:BAND_ROWS] != second[:BAND_ROWS]).all(axis=1).any()


@pytest.mark.docker
@pytest.mark.usefixtures("docker_engine")
def test_a_run_over_stand_ins_alone_trains(tmp_path):
    config = load("osworld-8gpu")
    model = write_stand_in(config, tmp_path / "model")
    _, result = execute(with_settings(config, {**SMALL, "policy.model": str(model)}), tmp_path / "run")
    counts = result.recorder.counts
    assert result.figures["total_updates"] == 1
    assert result.recorder.updates[0].metrics["learner/turns"] > 0.0
    assert counts["rewarded"] > 0
    assert {name for name in counts if name.startswith("cause/")} <= {"cause/run ended"}


def test_replies_can_be_read_by_the_configured_grammar(tmp_path):
    from dartsim.envs.actions.ui_tars import UiTars

    config = load("osworld-8gpu")
    model = write_stand_in(config, tmp_path / "model")
    vlm = build(vlm_config(config.replace(policy={"model": str(model)})))
    assert vlm.rules.shape(1080, 1920) == (1092, 1932)
    readable = UiTars(1920, 1080).readable
    texts = [vlm.vocabulary.decode(tokens) for tokens in replies(vlm, config)]
    assert all(readable(text) for text in texts)
    assert 0 < sum("finished" in text for text in texts) < len(texts) / 5


def test_a_stand_in_that_does_not_start_is_refused():
    async def main():
        async with stand_in("engine", "--no-such-option"):
            pass

    with pytest.raises(ConfigError, match="did not start"):
        asyncio.run(main())


def test_a_client_that_leaves_in_mid_request_is_no_error(capfd):
    head = b"POST /execute HTTP/1.1\r\nHost: desktop\r\nContent-Length: 100\r\n"

    async def leave() -> bytes:
        async with stand_in("desktops", "--width", "96", "--height", "96", "--ports", "0") as (address,):
            host, port = address.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(head + b"Expect: 100-continue\r\n\r\n{")
            assert b"100 Continue" in await reader.readline()  # the handler has begun
            writer.close()
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET /screen_size HTTP/1.1\r\nHost: desktop\r\nConnection: close\r\n\r\n")
            answer = await reader.read()
            writer.close()
            return answer

    assert b'"width": 96' in asyncio.run(leave())
    assert capfd.readouterr().err == ""
