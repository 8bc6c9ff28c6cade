"""A checkpoint's folder that writes free text in UI-TARS's form, from the configuration to a reply on the desktop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dartsim.config import load
from dartsim.core.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pytest.importorskip("torch", reason="needs the extra `train`")
    pytest.importorskip("transformers", reason="needs the extra `train`")
    from dartsim.real.vlm import Decoding, VlmConfig, build
    from dartsim.real.vlm.export import export

    return export(build(VlmConfig(decoding=Decoding(grammar="free"))), tmp_path / "model")


def config(folder: Path, *more: str) -> Any:
    changes = ["policy.grammar=ui_tars", f"policy.model={folder}", "policy.max_new_tokens=7", *more]
    return load(preset_name="tiny", overrides=changes)


def test_free_text_without_a_checkpoint_is_refused():
    with pytest.raises(ConfigError, match="random weights do not write"):
        load(preset_name="tiny", overrides=["policy.grammar=ui_tars"])


def test_the_model_is_the_folder_s_with_the_settings_of_the_policy(folder: Path):
    from dartsim.real.vlm import build
    from dartsim.real.vlm.plan import vlm_config

    found = config(folder, "policy.dtype=bfloat16", "policy.temperature=0.7", "trainer.lora.rank=4")
    made = vlm_config(found)
    assert (made.folder, made.dtype, made.decoding.max_new_tokens) == (str(folder), "bfloat16", 7)
    assert (made.decoding.grammar, made.decoding.temperature) == ("free", 0.7)
    assert made.prompts.task.endswith("## User Instruction\n{instruction}\n")
    assert (made.prompts.box_tokens, made.prompts.image_with_task) == (True, False)
    import torch

    assert next(build(made).model.parameters()).dtype is torch.bfloat16


def test_coordinates_follow_the_family(folder: Path):
    from dartsim.real.vlm.plan import vlm_config

    plain = "policy.prompt=plain"
    options = {"absolute": False, "malformed": "skip", "call_user_waits": 0}
    assert config(folder).policy.action_grammar == ("ui_tars", options)
    older = config(folder, "policy.family=qwen2_5_vl", "policy.malformed=done", plain)
    assert older.policy.action_grammar == ("ui_tars", {**options, "absolute": True, "malformed": "done"})
    assert "pixels of the screenshot" in vlm_config(older).prompts.task
    assert "thousandths" in vlm_config(config(folder, plain)).prompts.task
    assert not vlm_config(older).prompts.box_tokens


def test_dart_s_prompt_holds_the_first_screenshot(folder: Path):
    from dartsim.real.vlm.plan import vlm_config

    made = vlm_config(config(folder, "policy.prompt=dart", "policy.language=Chinese")).prompts
    assert made.image_with_task
    assert "- Use Chinese in" in made.task
    assert "password" in made.task


def test_a_run_does_not_train_on_the_likeliest_tokens(folder: Path, tmp_path: Path):
    from dartsim.run.execute import execute

    with pytest.raises(ConfigError, match="dartsim eval --temperature 0"):
        execute(config(folder, "policy.temperature=0"), tmp_path / "run")


def test_the_user_s_words_are_a_file(folder: Path, tmp_path: Path):
    from dartsim.core.types import Observation
    from dartsim.real.vlm import build
    from dartsim.real.vlm.plan import vlm_config

    words = tmp_path / "words.txt"
    words.write_text("Be quick. {instruction}!\n", encoding="utf-8")
    made = vlm_config(config(folder, f"policy.instructions={words}"))
    assert made.prompts.task == "Be quick. {instruction}!"
    import numpy as np

    vlm = build(made)
    prompt = vlm.prompts.build(Observation(np.zeros((56, 56, 3), np.uint8), "open {it}"), [])
    assert "Be quick. open {it}!" in vlm.vocabulary.decode(prompt.tokens.tolist())
    words.write_text("Be quick.", encoding="utf-8")
    with pytest.raises(ConfigError, match="does not say where the task goes"):
        vlm_config(config(folder, f"policy.instructions={words}"))
    with pytest.raises(ConfigError, match="cannot be read"):
        vlm_config(config(folder, "policy.instructions=nowhere.txt"))


def test_a_run_goes_from_folder_to_low_rank_updates(folder: Path, tmp_path: Path):
    """The mock desktop in virtual time: free text that means nothing is scored 0, and trained on."""
    from dartsim.run.execute import execute

    changes = ["run.updates=2", "run.hours=2.0", "run.target_success=none", "tasks.held_out=0", "tasks.count=8"]
    changes += ["trainer.promotion.enabled=false", "trainer.lora.rank=2", "curation.groups.drop_all_failed=false"]
    changes += ["trainer.objective.advantage.spread=none", "curation.batch.min_groups=1", "curation.batch.max_groups=1"]
    changes += ["curation.pool.enabled=false", "rollout.num_envs=4", "trainer.evaluation.every_updates=none"]
    done, _ = execute(config(folder, *changes), tmp_path / "run")
    assert done.summary["total_updates"] == 2
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()


def test_ranks_see_the_gpus_they_were_given():
    from dartsim.config.sections.trainer import FsdpConfig
    from dartsim.real.learners.fsdp.group import rank_command, rank_variables

    seen = rank_variables(FsdpConfig(gpus=[4, 5]))
    assert seen == {"CUDA_VISIBLE_DEVICES": "4,5", "GLOO_SOCKET_IFNAME": "lo"}
    assert "CUDA_VISIBLE_DEVICES" not in rank_variables(FsdpConfig())
    assert "--nproc-per-node=3" in rank_command(FsdpConfig(ranks=3), "folder")
