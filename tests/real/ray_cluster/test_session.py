"""The connection to a cluster: what is refused, and that a connection inside another one changes nothing."""

import socket

import pytest

from dartsim.core.errors import ConfigError
from dartsim.real.ray_cluster.session import check_reachable, connected


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_where_nobody_listens_is_refused_at_once(scheme):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"{scheme}127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=address):
            check_reachable(address)


def test_a_connection_inside_another_one_leaves_it_open(local_ray):
    import ray

    with connected("local"):
        pass
    with connected("127.0.0.1:1"):
        pass
    assert ray.is_initialized()


def test_a_ray_of_our_own_keeps_to_the_loopback(local_ray):
    import ray

    assert [node["NodeManagerAddress"] for node in ray.nodes()] == ["127.0.0.1"]
