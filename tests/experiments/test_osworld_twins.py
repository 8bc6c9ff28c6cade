import json

from experiments import osworld_twins
from experiments.clusters import Cluster
from experiments.osworld_twins import ARMS, FIGURES, run_twin, twins_picture
from experiments.study import Options


def test_the_twin_of_a_real_preset_runs_in_virtual_time():
    found = run_twin(Cluster("osworld-1gpu", 1.0, 0, ("rollout.num_envs=8",)))
    assert found["generated_turns_per_minute"] > 0.0
    assert set(FIGURES) <= set(found)


def test_gpu_hours_follow_from_the_trained_turns_and_the_gpus_of_the_preset(tmp_path, monkeypatch):
    made = dict.fromkeys(FIGURES, 25.0)
    monkeypatch.setattr(Options, "sweep", lambda self, function, runs: [made for _ in runs])
    target = tmp_path / "f.json"
    osworld_twins.STUDY.run(["--json", str(target)])
    figures = json.loads(target.read_text())
    found = {(arm["preset"], arm["desktops"]): arm for arm in figures["arms"]}
    assert len(found) == len(ARMS)
    assert found["osworld-8gpu", 38]["hours"] == 50.0
    assert found["osworld-8gpu", 38]["gpu_hours"] == 400.0
    assert found["osworld-16gpu", 80]["gpu_hours"] == 800.0
    head, rows = osworld_twins.twin_rows(figures)
    assert all(len(row) == len(head) for row in rows)
    assert "16gpu, 80" in twins_picture(figures)
