"""The domain hash: equal facts, however they are computed."""

import pytest

from experiments.domain_hashes import FEWER_HOURS, run_hashes, runs, same_versions
from experiments.study import recorded

RECORDED = recorded("domain_hashes")


def test_every_simulated_preset_is_recorded():
    assert list(RECORDED["runs"]) == runs()


@pytest.mark.skipif(not same_versions(RECORDED), reason="recorded with other versions of Python or numpy")
@pytest.mark.parametrize("run", RECORDED["runs"])
def test_a_preset_does_what_it_did(run):
    assert run_hashes(run, FEWER_HOURS)["domain_hash"] == RECORDED["runs"][run]["fewer_hours"]


@pytest.mark.slow
@pytest.mark.skipif(not same_versions(RECORDED), reason="recorded with other versions of Python or numpy")
@pytest.mark.parametrize("run", RECORDED["runs"])
def test_a_preset_does_what_it_did_for_longer(run):
    assert run_hashes(run)["domain_hash"] == RECORDED["runs"][run]["domain_hash"]
