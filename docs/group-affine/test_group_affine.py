"""What must hold of the router; `pytest` in this directory runs it."""

from group_affine import GroupAffine

import dartsim


def test_it_keeps_the_rules_of_routers():
    dartsim.check_router(GroupAffine)


def test_a_group_stays_on_its_engine(cluster):
    ours, base = (cluster.simulate("areal-eta4", router=router) for router in (GroupAffine, "least_in_flight"))
    assert ours.prefix_hit_share > base.prefix_hit_share


def test_it_trains_no_less_than_areal(cluster):
    ours = dartsim.load("areal-eta4", router=GroupAffine)
    comparison = cluster.compare({"ours": ours, "areal-eta4": "areal-eta4"}, seeds=3)
    comparison.fail_if("trained_turns_per_minute < 0.95 * areal-eta4")
