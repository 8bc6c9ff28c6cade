"""Routing rules, against a search over all workers."""

from hypothesis import given
from hypothesis import strategies as st

from dartsim.rollout.routers import Routed
from dartsim.rollout.routers.least_in_flight import LeastInFlight
from dartsim.rollout.routers.round_robin import GroupRoundRobin, RoundRobin
from dartsim.rollout.routers.session_affine import SessionAffine


def workers(router, count):
    found = [Routed(index) for index in range(count)]
    for worker in found:
        router.add(worker)
    return found


def load(router, worker, requests):
    for _ in range(requests):
        router.begin(worker)


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["begin", "end", "add", "remove", "pick", "other"]), st.integers(0, 5)),
    max_size=60,
)


def test_a_session_stays_with_its_worker_unless_that_is_overloaded():
    router = SessionAffine(SessionAffine.Parameters(max_excess=2))
    first, second = workers(router, 2)
    load(router, first, 2)
    assert router.pick(first) is first
    router.begin(first)
    assert router.pick(first) is second
    assert router.pick(None) is second
    router.begin(second)
    assert router.pick(first) is first


@given(OPERATIONS, st.sampled_from([None, 0, 1, 3]))
def test_a_router_agrees_with_a_search_over_all_workers(operations, max_excess):
    router = LeastInFlight() if max_excess is None else SessionAffine(SessionAffine.Parameters(max_excess=max_excess))
    everyone = workers(router, 4)
    for operation, number in operations:
        worker = everyone[number % 4]
        up = [each for each in everyone if each.routable]
        if operation == "begin":
            router.begin(worker)
        elif operation == "end" and worker.in_flight:
            router.end(worker)
        elif operation == "add" and not worker.routable:
            router.add(worker)
        elif operation == "remove" and worker.routable:
            router.remove(worker)
        elif operation == "pick" and up:
            last = None if number == 5 else worker
            picked, least = router.pick(last), min(each.in_flight for each in up)
            assert picked.routable
            stays = max_excess is not None and last in up and last.in_flight - least <= max_excess
            assert picked is last if stays else picked.in_flight == least
        elif operation == "other" and up:
            others = [each for each in up if each is not worker] or up
            assert router.other_than(worker) in others
            assert router.other_than(worker).in_flight == min(each.in_flight for each in others)
        assert router.num_routable == sum(each.routable for each in everyone)


def test_sessions_take_workers_in_turn_whatever_their_load_and_keep_them():
    router = RoundRobin()
    first, second, third = workers(router, 3)
    load(router, first, 9)
    assert [router.pick(None).index for _ in range(4)] == [0, 1, 2, 0]
    assert router.pick(third) is third
    router.remove(third)
    assert router.pick(third) is second
    assert [router.pick(None).index for _ in range(3)] == [0, 0, 1]


def test_a_group_s_sessions_share_a_worker():
    router = GroupRoundRobin()
    first, second = workers(router, 2)
    assert {router.pick(None, 4).index for _ in range(3)} == {first.index}
    assert router.pick(None, 7) is second
    router.remove(second)
    assert router.pick(None, 7) is first
    assert router.pick(second, 7) is first
    router.add(second)
    assert router.pick(None, 7) is second
