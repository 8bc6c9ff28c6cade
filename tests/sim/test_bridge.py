"""The simulated world on a real loop, beside a real socket. Order and values only: real time is never exact."""

from __future__ import annotations

import asyncio
import time

import pytest

from dartsim.sim import wait
from dartsim.sim.bridge import BridgeEnvironment
from dartsim.sim.host import SimHost


def run(main, speed=100.0):
    async def start():
        world = BridgeEnvironment(asyncio.get_running_loop(), speed=speed)
        return await main(world)

    return asyncio.run(start())


def test_events_and_timers_happen_in_order_at_their_times():
    async def main(world):
        log = []
        start = world.now
        world.call_in(2, lambda: log.append(("timer", world.now)))
        world.call_in(1.5, log.append, "never").cancel()

        def process():
            yield world.timeout(1)
            log.append(("process", world.now))
            yield world.timeout(2)
            log.append(("process", world.now))
            return "done"

        assert await wait(world.process(process())) == "done"
        assert await wait(world.timeout(0, "at once")) == "at once"
        return log, start

    log, start = run(main)
    assert [name for name, _ in log] == ["process", "timer", "process"]
    times = [time - start for _, time in log]
    # Relative to one another they are exact: the world's clock is at each event's own time.
    assert times[0] >= 1.0
    assert times[2] - times[0] == pytest.approx(2.0)
    assert times[1] >= 2.0


def test_a_real_socket_works_beside_it():
    async def main(world):
        async def answer(reader, writer):
            request = await reader.readline()
            await wait(world.timeout(1))  # a simulated engine behind a real socket
            writer.write(request.upper())
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"click\n")
            before = world.now
            reply = await reader.readline()
            writer.close()
            await writer.wait_closed()
        return reply, world.now - before

    reply, seconds = run(main)
    assert reply == b"CLICK\n"
    assert seconds >= 1.0


def test_cancelling_a_wait_detaches():
    async def main(world):
        event = world.event()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.005):
                await wait(event)
        assert event.callbacks == []

    run(main)


def test_an_unhandled_failure_goes_to_the_exception_handler_and_the_world_goes_on():
    async def main(world):
        seen = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context["exception"]))
        world.call_in(1, lambda: 1 // 0)
        world.event().fail(LookupError("lost"))
        await wait(world.timeout(2))
        return seen

    assert [type(exc) for exc in run(main)] == [LookupError, ZeroDivisionError]


def test_a_closed_world_does_nothing_more():
    async def main(world):
        log = []
        world.call_in(0.5, log.append, "never")
        world.close()
        await asyncio.sleep(0.02)
        return log

    assert run(main) == []


def test_jobs_contend_between_the_end_of_one_and_its_task():
    async def main(world):
        host = SimHost(world, cores=1.0)

        async def second():
            await wait(world.timeout(0.001))
            await host.run(0.001, 1.0)

        jobs = [asyncio.create_task(host.run(0.002, 1.0)), asyncio.create_task(second())]
        world.loop.call_soon(time.sleep, 0.005)  # so that both timers fire before either task wakes
        await asyncio.gather(*jobs)
        return host.cores

    cores = run(main, speed=1.0)
    assert (cores.num_jobs, cores.demand) == (0, 0.0)
    assert cores.core_seconds == pytest.approx(0.003)
