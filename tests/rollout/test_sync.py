"""Weight synchronization: every worker ends on the newest weights, a slice at a time, whatever fails."""

import asyncio
import math

from dartsim.core.errors import WorkerFault
from dartsim.core.types import Request, Weights
from dartsim.observe import DesktopState
from dartsim.rollout import RolloutService, sync
from dartsim.rollout.routers.least_in_flight import LeastInFlight


class Watched(LeastInFlight):
    """A router that writes down how many workers take requests after every change."""

    def __init__(self):
        super().__init__()
        self.numbers = []

    def remove(self, worker):
        super().remove(worker)
        self.numbers.append(self.num_routable)


def service_of(fakes, engines, *, clients=0, **options):
    recorder = fakes.recorder(max(clients, 1), len(engines))
    service = RolloutService(
        engines,
        weights=Weights(0),
        router=Watched(),
        config=fakes.sync_config(max_tries=1000, **options),
        recorder=recorder,
    )
    syncing = asyncio.get_running_loop().create_task(service.run())
    return service, syncing


def loads(engines):
    return [engine.loads for engine in engines]


async def test_a_rolling_change_visits_slices_in_turn(fakes):
    engines = fakes.engines(5)
    service, _ = service_of(fakes, engines, workers_at_a_time=2)
    service.publish(Weights(1))
    await service.settled(1)
    assert fakes.now() == 30.0
    first, second, third = (0.0, 10.0, 1), (10.0, 20.0, 1), (20.0, 30.0, 1)
    assert loads(engines) == [[first], [first], [second], [second], [third]]
    assert min(service.router.numbers) == 3
    assert [worker.version for worker in service.workers] == [1] * 5
    assert service.recorder.counts["syncs"] == 1


async def test_a_newer_publication_supersedes_a_change_under_way(fakes):
    """Two updates a second apart: what had not begun loads the newer one, the other worker is visited again."""
    engines = fakes.engines(3)
    service, _ = service_of(fakes, engines)
    service.publish(Weights(1))
    await asyncio.sleep(1.0)
    service.publish(Weights(2))
    await service.settled(2)
    assert loads(engines) == [[(0.0, 10.0, 1), (30.0, 40.0, 2)], [(10.0, 20.0, 2)], [(20.0, 30.0, 2)]]
    assert fakes.now() == 40.0
    assert [worker.version for worker in service.workers] == [2, 2, 2]


async def test_an_older_publication_is_ignored(fakes):
    engines = fakes.engines(1)
    service, _ = service_of(fakes, engines)
    service.publish(Weights(5))
    service.publish(Weights(4))
    await asyncio.sleep(100.0)
    service.publish(Weights(3))
    await asyncio.sleep(100.0)
    assert loads(engines) == [[(0.0, 10.0, 5)]]


async def test_settled_returns_when_the_last_worker_has_it_though_a_newer_one_is_on_its_way(fakes):
    engines = fakes.engines(2)
    service, _ = service_of(fakes, engines)
    service.publish(Weights(1))
    waiting = asyncio.get_running_loop().create_task(service.settled(1))
    waiting.add_done_callback(lambda _: times.append(fakes.now()))
    times = []
    await asyncio.sleep(15.0)
    service.publish(Weights(2))
    await service.settled(2)
    # Worker 1 has version 1 at 20, and both have version 2 at 40.
    assert times == [20.0]
    assert fakes.now() == 40.0


async def test_a_load_that_fails_is_tried_again_and_its_worker_is_down_meanwhile(fakes):
    engines = fakes.engines(2)
    engines[0].load_faults = iter([True, True, False])
    service, _ = service_of(fakes, engines)
    service.publish(Weights(1))
    await service.settled(1)
    assert engines[0].loads == [(0.0, 10.0, 1), (15.0, 25.0, 1), (35.0, 45.0, 1)]
    assert engines[1].loads == [(45.0, 55.0, 1)]
    assert service.recorder.counts["fault/load"] == 2
    assert fakes.spent(service.recorder.engines) == {"LOADING": 40.0, "DOWN": 15.0, "IDLE": 45.0 + 10.0}


async def test_a_load_that_hangs_is_given_up_and_tried_again(fakes):
    engines = fakes.engines(2)
    whole = engines[0].load

    async def hangs_once(weights, mode):
        engines[0].load = whole
        await asyncio.sleep(1000.0)

    engines[0].load = hangs_once
    service, _ = service_of(fakes, engines, load_seconds=60.0)
    service.publish(Weights(1))
    await service.settled(1)
    assert fakes.now() == 60.0 + 5.0 + 10.0 + 10.0
    assert (service.recorder.counts["fault/load"], service.recorder.counts["load_cause/load_timeout"]) == (1, 1)


async def test_a_drained_worker_does_not_wait_for_a_request_that_was_cancelled(fakes):
    engines = fakes.engines(1, seconds=25.0)
    service, _ = service_of(fakes, engines, clients=1)
    request = Request(fakes.attempt(), 0, fakes.SEEN, [])
    session = service.session(fakes.attempt(), service.recorder.desktops.tracks[0])
    asking = asyncio.get_running_loop().create_task(session.generate(request))
    await asyncio.sleep(1.0)
    service.publish(Weights(1))
    await asyncio.sleep(1.0)
    asking.cancel()
    await service.settled(1)
    assert engines[0].loads == [(2.0, 12.0, 1)]


async def test_a_worker_that_takes_no_weights_keeps_nobody_from_them(fakes):
    """Loads of worker 0 end at 10, 25 and 45 in vain; the others follow, and worker 0 goes on by itself from 65."""
    engines = fakes.engines(3)
    engines[0].load_faults = iter([True] * 4)
    service, _ = service_of(fakes, engines)
    service.publish(Weights(1))
    await service.settled(1)
    assert [engine.loads for engine in engines[1:]] == [[(45.0, 55.0, 1)], [(55.0, 65.0, 1)]]
    assert [worker.out_of_rotation for worker in service.workers] == [True, False, False]
    service.publish(Weights(2))
    await service.settled(2)
    await asyncio.sleep(100.0)
    assert [begin for begin, _, _ in engines[0].loads] == [0.0, 15.0, 35.0, 65.0, 115.0]
    assert [worker.version for worker in service.workers] == [2, 2, 2]
    assert service.router.num_routable == 3
    assert not any(worker.out_of_rotation for worker in service.workers)


async def test_weights_that_nobody_could_load_leave_the_last_worker_its_old_ones(fakes):
    """Worker 0 loads them at last at 125; until then worker 1 serves the old ones."""
    engines = fakes.engines(2)
    engines[0].load_faults = iter([True] * 4)
    service, _ = service_of(fakes, engines)
    service.publish(Weights(1))
    await asyncio.sleep(124.0)
    assert [worker.routable for worker in service.workers] == [False, True]
    await asyncio.sleep(12.0)
    assert engines[1].loads == [(125.0, 135.0, 1)]


async def test_the_others_wait_for_no_load_of_a_worker_that_is_down(fakes):
    engines = fakes.engines(2)
    inner, wanted = engines[0].load, iter([True, True])

    async def load(weights, mode):
        if next(wanted, False):
            raise Down(math.inf)
        await inner(weights, mode)

    engines[0].load = load
    service, _ = service_of(fakes, engines)
    service.publish(Weights(1))
    await service.settled(1)
    assert fakes.now() == 10.0
    assert engines[1].loads == [(0.0, 10.0, 1)]
    await asyncio.sleep(100.0)
    assert engines[0].loads == [(15.0, 25.0, 1)]  # at 0 and 5 in vain


class Down(WorkerFault):
    """What a worker raises that is down until ``at``."""

    def __init__(self, at):
        super().__init__("down")
        self.at = at

    async def back(self):
        await asyncio.sleep(max(0.0, self.at - asyncio.get_running_loop().time()))


class Mortal:
    """A worker that is down for a while; it takes its time to say so, as one that is waited for does."""

    def __init__(self, inner, *, down, up):
        self.inner, self.down, self.up = inner, down, up
        self.asked_while_down = 0

    def check(self):
        if self.down <= asyncio.get_running_loop().time() < self.up:
            self.asked_while_down += 1
            raise Down(self.up)

    async def generate(self, request):
        self.check()
        reply = await self.inner.generate(request)
        self.check()
        return reply

    async def load(self, weights, mode):
        assert not self.down <= asyncio.get_running_loop().time() < self.up, "a load while out of rotation"
        await self.inner.load(weights, mode)


async def asking(fakes, service, client, until):
    track = service.recorder.desktops.tracks[client]
    session = service.session(fakes.attempt(client), track)
    replies = []
    while fakes.now() < until:
        track.enter(DesktopState.GENERATING)
        replies.append((fakes.now(), await session.generate(Request(fakes.attempt(client), 0, fakes.SEEN, []))))
    return replies


async def test_a_worker_that_is_down_is_asked_nothing_until_it_is_back(fakes):
    inner = fakes.engines(2)
    engines = [Mortal(inner[0], down=10.0, up=50.0), inner[1]]
    service, _ = service_of(fakes, engines, clients=4)
    clients = [asyncio.get_running_loop().create_task(asking(fakes, service, n, 80.0)) for n in range(4)]
    await asyncio.sleep(40.0)
    assert [worker.out_of_rotation for worker in service.workers] == [True, False]
    service.publish(Weights(1))
    await service.settled(1)
    assert engines[0].asked_while_down == 2  # those that were under way
    found = [entry for entries in await asyncio.gather(*clients) for entry in entries]
    assert {reply.worker for begun, reply in found if 12.0 < begun < 40.0} == {1}
    assert {reply.worker for begun, reply in found if begun > 70.0} == {0, 1}
    assert [worker.version for worker in service.workers] == [1, 1]
    assert service.recorder.counts["fault/engine_down"] == 1
    assert service.recorder.counts["fault/request_worker"] == 2


async def test_a_worker_that_comes_back_loads_what_was_published_meanwhile(fakes):
    """Worker 0 is down from 10 to 100; version 1 is served by the other one from 53, and nothing is published again."""
    engines = [Mortal(fakes.Engine(), down=10.0, up=100.0), fakes.Engine(1)]
    service, _ = service_of(fakes, engines, clients=2)
    clients = [asyncio.get_running_loop().create_task(asking(fakes, service, n, 20.0)) for n in range(2)]
    await asyncio.gather(*clients)
    await asyncio.sleep(40.0 - fakes.now())
    service.publish(Weights(1))
    await service.settled(1)
    await asyncio.sleep(99.0 - fakes.now())
    assert [(worker.version, worker.out_of_rotation) for worker in service.workers] == [(0, True), (1, False)]
    await asyncio.sleep(12.0)
    assert engines[0].inner.loads == [(100.0, 110.0, 1)]
    assert [(w.version, w.out_of_rotation, w.routable) for w in service.workers] == [(1, False, True)] * 2


async def test_a_worker_that_loads_at_last_also_loads_what_was_published_during_that(fakes, monkeypatch):
    """Worker 0 loads version 1 from 180 to 240, in vain before; the others load version 2 meanwhile, until 220."""
    engines = [fakes.Engine(load_seconds=60.0, load_faults=[True] * 2), fakes.Engine(1), fakes.Engine(2)]
    monkeypatch.setattr(sync, "RETRY_SECONDS", 20.0)
    monkeypatch.setattr(sync, "TRIES", 2)
    service, _ = service_of(fakes, engines)
    service.publish(Weights(1))
    await asyncio.sleep(200.0)
    assert [worker.out_of_rotation for worker in service.workers] == [True, False, False]
    service.publish(Weights(2))
    await service.settled(2)
    assert fakes.now() == 220.0
    await asyncio.sleep(90.0)
    assert [version for _, _, version in engines[0].loads] == [1, 1, 1, 2]
    assert [(worker.version, worker.out_of_rotation) for worker in service.workers] == [(2, False)] * 3


async def test_requests_wait_in_the_pool_while_its_only_worker_is_down(fakes):
    engine = Mortal(fakes.Engine(), down=4.0, up=50.0)
    service, _ = service_of(fakes, [engine], clients=2)
    await asyncio.gather(*(asking(fakes, service, n, 60.0) for n in range(2)))
    assert engine.asked_while_down == 2
    assert fakes.spent(service.recorder.engines)["DOWN"] == 44.0
    spent = fakes.spent(service.recorder.desktops)
    assert "SYNC_WAIT" not in spent, "no weights were changed"
    assert spent["GENERATING"] > 2 * 44.0


async def test_a_slice_of_all_that_serves_changes_one_by_one_while_another_worker_refuses(fakes):
    """With two at a time, the last two would otherwise wait for the one that refuses, forever."""
    engines = fakes.engines(3)
    service, _ = service_of(fakes, engines, workers_at_a_time=2)

    async def refuse(weights, mode):
        raise WorkerFault("torn weights")

    engines[1].load = refuse
    for version in (1, 2, 3):
        service.publish(Weights(version))
        await service.settled(version)
    assert [worker.version for worker in service.workers] == [3, 0, 3]
    assert min(service.router.numbers) >= 1, "somebody serves all along"


async def test_a_coupled_trainer_is_not_kept_waiting_by_weights_that_are_torn_for_good(fakes):
    """Nobody can load version 1: only version 2 helps, and whoever makes it must not wait for version 1."""
    engines = fakes.engines(3)

    def tear(engine):
        whole = engine.load

        async def load(weights, mode):
            if weights.version == 1:
                raise WorkerFault("torn weights")
            await whole(weights, mode)

        engine.load = load

    for engine in engines:
        tear(engine)
    service, _ = service_of(fakes, engines)
    service.publish(Weights(1))
    async with asyncio.timeout(1000.0):
        await service.settled(1)
    assert fakes.now() == 2 * (5.0 + 10.0), "two workers refused it, three times each"
    assert [worker.routable for worker in service.workers] == [False, False, True]
    service.publish(Weights(2))
    await service.settled(2)
    assert [worker.version for worker in service.workers if not worker.out_of_rotation] == [2, 2]
    await asyncio.sleep(100.0)
    assert [worker.version for worker in service.workers] == [2, 2, 2]


async def test_requests_kept_in_a_worker_that_takes_no_weights_are_asked_elsewhere(fakes):
    """Loads of worker 0 end at 11, 26 and 46 in vain; the next one is a restart, at 66."""
    engines = fakes.engines(2, seconds=5.0)
    engines[0].load_faults = iter([True] * 100)
    service, _ = service_of(fakes, engines, clients=1, mode="keep")
    session = service.session(fakes.attempt(), service.recorder.desktops.tracks[0])
    asking = asyncio.get_running_loop().create_task(session.generate(Request(fakes.attempt(), 0, fakes.SEEN, [])))
    await asyncio.sleep(1.0)
    service.publish(Weights(1))
    async with asyncio.timeout(1000.0):
        reply = await asking
    assert (reply.worker, reply.version) == (1, 0)
    assert fakes.now() == 66.0 + 5.0
    assert service.recorder.counts["fault/request_restarted"] == 1
