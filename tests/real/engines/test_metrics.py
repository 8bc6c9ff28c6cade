from __future__ import annotations

from dartsim.real.engines.metrics import EngineLoad, parse_metrics

PAGE = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="policy"} 3.0
vllm:num_requests_running{engine="1",model_name="policy"} 2.0
vllm:num_requests_waiting{engine="0",model_name="policy"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="a b",reason="capacity"} 7.0
vllm:kv_cache_usage_perc{engine="0",model_name="a } b"} 0.25
vllm:prefix_cache_queries_total{engine="0"} 1.5e+03 1795231153651
vllm:prefix_cache_hits_total 500
vllm:prefix_cache_hits_created{engine="0"} 1.7952311536510165e+09
python_gc_objects_collected_total{generation="0"} 9.0
"""


def test_the_page_is_read_and_engines_are_added_up() -> None:
    load = parse_metrics(PAGE)
    assert load == EngineLoad(running=5, waiting=1, kv_usage=0.25, prefix_queries=1500, prefix_hits=500)
    assert load.prefix_hit_share == 1 / 3


def test_counters_are_counted_since_an_earlier_reading() -> None:
    load = parse_metrics(PAGE)
    assert load.since(load) == EngineLoad(running=5, waiting=1, kv_usage=0.25)
    assert load.since(load).prefix_hit_share is None
    assert parse_metrics("") == EngineLoad()
