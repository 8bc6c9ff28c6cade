"""A checkpoint's folder that writes free text in UI-TARS's form, from the configuration to a reply on the desktop."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
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
    return load("tiny", overrides=changes)


def test_free_text_without_a_checkpoint_is_refused():
    with pytest.raises(ConfigError, match="random weights do not write"):
        load("tiny", overrides=["policy.grammar=ui_tars"])


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


def test_coordinates_follow_the_checkpoint_s_family(folder: Path):
    """The preset's family is Qwen3-VL, the folder holds a Qwen2.5-VL."""
    from dartsim.real.vlm.plan import vlm_config

    plain = "policy.prompt=plain"
    seen = {"factor": 28, "min_pixels": 28 * 28, "max_pixels": 1280 * 28 * 28}
    options = {"absolute": True, "malformed": "done", "call_user_waits": 0, **seen}
    older = config(folder, "policy.malformed=done", plain)
    assert older.policy.action_grammar == ("ui_tars", options)
    assert "pixels of the screenshot" in vlm_config(older).prompts.task
    assert not vlm_config(older).prompts.box_tokens
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3_vl"}))
    newer = config(folder, "policy.family=qwen2_5_vl", plain)
    assert newer.policy.action_grammar[1]["absolute"] is False
    assert "thousandths" in vlm_config(newer).prompts.task


SMALLER = {"patch_size": 14, "merge_size": 2, "min_pixels": 3_136, "max_pixels": 1_003_520}


@pytest.mark.parametrize(
    ("files", "seen"),
    [
        ({"preprocessor_config.json": SMALLER}, (1316, 728)),
        ({"preprocessor_config.json": {"size": {"shortest_edge": 3_136, "longest_edge": 1_003_520}}}, (1316, 728)),
        ({"processor_config.json": {"image_processor": SMALLER}}, (1316, 728)),
        (
            {
                "preprocessor_config.json": {**SMALLER, "max_pixels": 12_845_056},
                "processor_config.json": {"image_processor": SMALLER},
            },
            (1316, 728),
        ),
        ({"preprocessor_config.json": {**SMALLER, "max_pixels": 12_845_056}}, (1932, 1092)),
        ({"preprocessor_config.json": {**SMALLER, "min_pixels": 4_000_000, "max_pixels": 8_000_000}}, (2688, 1512)),
    ],
)
def test_the_middle_of_what_the_model_saw_is_the_middle_of_the_screen(
    folder: Path, files: dict[str, Any], seen: tuple[int, int]
):
    """A click, the end of a drag and a scroll are all scaled from the size of the very picture."""
    from dartsim.envs.actions import make_grammar
    from dartsim.envs.actions.model import Click, Drag, Move, Scroll
    from dartsim.lab.model_shapes import read_shape
    from dartsim.real.vlm import build
    from dartsim.real.vlm.images import ImageRules
    from dartsim.real.vlm.plan import vlm_config

    (folder / "preprocessor_config.json").unlink()
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    chosen = config(folder)
    name, options = chosen.policy.action_grammar
    grammar = make_grammar(name, 1920, 1080, **options)
    assert grammar.extent == seen
    middle = f"({seen[0] // 2},{seen[1] // 2})"
    assert grammar.parse(f"Action: click(start_box='{middle}')") == (Click(960, 540),)
    assert grammar.parse(f"Action: drag(start_box='(0,0)', end_box='{middle}')") == (Move(0, 0), Drag(960, 540))
    assert grammar.parse(f"Action: scroll(start_box='{middle}', direction='up')") == (Move(960, 540), Scroll(0, 5))
    vlm = build(vlm_config(chosen))
    picture = vlm.prompts.pictures(np.zeros((1080, 1920, 3), np.uint8))
    assert picture.grid == (seen[1] // 14, seen[0] // 14)
    assert read_shape(folder).image_patches(1920, 1080) == picture.grid[0] * picture.grid[1]
    vlm.save(folder.parent / "served")  # from which engines start
    assert ImageRules.of(replace(vlm.config, folder=str(folder.parent / "served"))) == vlm.rules


def test_dart_s_prompt_holds_the_first_screenshot(folder: Path):
    from dartsim.real.vlm.plan import vlm_config

    made = vlm_config(config(folder, "policy.prompt=dart", "policy.language=Chinese")).prompts
    assert made.image_with_task
    assert "- Use Chinese in" in made.task
    assert "password" in made.task


def test_a_run_does_not_train_on_the_likeliest_tokens(folder: Path, tmp_path: Path):
    from dartsim.run.execute import execute

    with pytest.raises(ConfigError, match="--temperature"):
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
    changes += ["trainer.lora.rank=2", "curation.groups.drop_all_failed=false"]
    changes += ["trainer.objective.advantage.spread=none", "curation.batch.min_groups=1", "curation.batch.max_groups=1"]
    changes += ["curation.pool.enabled=false", "rollout.num_envs=4", "trainer.evaluation.every_updates=none"]
    done, _ = execute(config(folder, *changes), tmp_path / "run")
    assert done.summary["total_updates"] == 2
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()
