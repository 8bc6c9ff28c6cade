"""Files of stored successes: read back as they were written, and refused when anything about them is wrong."""

import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dartsim.core.errors import ConfigError
from dartsim.core.types import Attempt, Ending, Observation, Reply, Task, Trajectory, Turn
from dartsim.real.pool_files import SCHEMA, read_pool, task_digest, write_pool
from dartsim.store.blobs import picture_digest

TASKS = [Task(f"t{i}", f"press {i}", "mock", {"config": [i]}) for i in range(3)]
MEANING = {"vocabulary": "abc", "grammar": "actions", "screen": 8}


def picture(seed: int, size: tuple[int, int] = (8, 6)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)


def success(
    task: Task, screens: list[int], *, scored: bool = True, tokens: int = 2, shown: str | None = None
) -> Trajectory:
    rng = np.random.default_rng(len(screens))
    turns = []
    for number, screen in enumerate(screens):
        own = [rng.standard_normal(tokens).astype(np.float32) if scored else None for _ in range(2)]
        words = rng.integers(0, 400, tokens)
        reply = Reply(f"click {number}", 7 + number, 7, 0, 50, tokens, words, *own)
        turns.append(Turn(Observation(picture(screen), shown or task.instruction), reply))
    attempt = Attempt(12, task, 3, 1, seed=99, turn_limit=30, version=6)
    return Trajectory(attempt, tuple(turns), Ending.DONE, 1.0, None, 5.0, 9.0)


def write(folder: Path, *successes: Trajectory, **meaning) -> Path:
    write_pool(folder / "pool", successes, writes=MEANING | meaning, source={"kind": "test"})
    return folder / "pool"


def assert_same(found: Trajectory, written: Trajectory):
    for name in ("task", "index", "seed", "turn_limit", "version"):
        assert getattr(found.attempt, name) == getattr(written.attempt, name)
    assert (found.reward, found.ending) == (written.reward, written.ending)
    assert (found.oldest_version, found.newest_version) == (written.oldest_version, written.newest_version)
    for (seen, reply), (shown, said) in zip(found.turns, written.turns, strict=True):
        assert np.array_equal(seen.screenshot, shown.screenshot)
        assert seen[1:] == shown[1:]
        assert (reply.action, reply.prompt_tokens, reply.response_tokens) == (said.action, 50, len(said.tokens))
        assert np.array_equal(reply.tokens, said.tokens)
        for one, other in ((reply.logprobs, said.logprobs), (reply.entropies, said.entropies)):
            assert (one is None) == (other is None)
            assert one is None or (np.array_equal(one, other) and one.dtype == np.float32)


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(
            *(st.integers(0, 2), st.lists(st.integers(0, 4), min_size=1, max_size=4), st.booleans(), st.integers(1, 5)),
            st.sampled_from((None, "another instruction")),
        ),
        max_size=6,
    )
)
def test_any_successes_are_read_back(tmp_path_factory, drawn):
    written = [
        success(TASKS[task], screens, scored=scored, tokens=n, shown=shown) for task, screens, scored, n, shown in drawn
    ]
    found = read_pool(write(tmp_path_factory.mktemp("pool"), *written), TASKS, writes=MEANING)
    assert (dict(found.writes), dict(found.source)) == (MEANING, {"kind": "test"})
    for one, other in zip(found.successes, written, strict=True):
        assert_same(one, other)


def test_a_picture_is_kept_once_by_its_pixels_and_can_be_looked_at(tmp_path):
    from PIL import Image

    pool = write(tmp_path, success(TASKS[0], [1, 1, 2]), success(TASKS[1], [2]))
    files = sorted(pool.glob("screens/*/*.png"))
    assert len(files) == 2
    assert {file.stem for file in files} == {picture_digest(picture(1)), picture_digest(picture(2))}
    (first,) = (file for file in files if file.stem == picture_digest(picture(1)))
    with Image.open(first) as shown:
        assert np.array_equal(np.asarray(shown), picture(1))
    first, second = read_pool(pool, TASKS).successes[0].turns[:2]
    assert first.observation.screenshot is second.observation.screenshot


def test_there_is_no_code_in_it(tmp_path):
    pool = write(tmp_path, success(TASKS[0], [1]))
    files = {file.suffix for file in pool.rglob("*") if file.is_file()}
    assert files == {".json", ".jsonl", ".png"}
    assert all(not file.read_bytes().startswith(b"\x80") for file in pool.rglob("*") if file.is_file())


def test_unknown_tasks_are_left_out_and_named_once(tmp_path):
    pool = write(tmp_path, success(TASKS[0], [1]), success(TASKS[1], [1]), success(TASKS[1], [2]))
    found = read_pool(pool, [TASKS[0], TASKS[2]])
    assert [one.attempt.task.id for one in found.successes] == ["t0"]
    assert found.unknown == ("t1",)


def test_a_task_of_the_same_id_that_is_another_is_refused(tmp_path):
    pool = write(tmp_path, success(TASKS[0], [1]))
    other = Task("t0", "press 0", "mock", {"config": ["another"]})
    assert task_digest(other) != task_digest(TASKS[0])
    with pytest.raises(ConfigError, match="'t0'"):
        read_pool(pool, [other])


def test_another_model_is_refused_and_every_difference_named(tmp_path):
    pool = write(tmp_path, success(TASKS[0], [1]))
    with pytest.raises(ConfigError) as refused:
        read_pool(pool, TASKS, writes={"vocabulary": "xyz", "grammar": "free", "screen": 8, "columns": 9})
    for key in ("columns", "grammar", "vocabulary"):
        assert key in str(refused.value)
    assert "screen" not in str(refused.value)


def damage_about(pool: Path, **changes):
    about = json.loads((pool / "pool.json").read_text())
    (pool / "pool.json").write_text(json.dumps(about | changes))


@pytest.mark.parametrize(
    ("harm", "file"),
    [
        (lambda pool: shutil.rmtree(pool), "pool.json"),
        (lambda pool: (pool / "pool.json").write_text("{"), "pool.json"),
        (lambda pool: (pool / "pool.json").write_text("[]"), "pool.json"),
        (lambda pool: damage_about(pool, schema=SCHEMA + 1), "schema"),
        (lambda pool: (pool / "rows.jsonl").write_text(""), "rows.jsonl"),
        (lambda pool: (pool / "rows.jsonl").unlink(), "rows.jsonl"),
        (lambda pool: next(pool.glob("screens/*/*.png")).unlink(), "png"),
        (lambda pool: next(pool.glob("screens/*/*.png")).write_bytes(b"\x89PNG"), "png"),
    ],
    ids=["absent", "torn", "list", "schema", "rows", "no rows", "no picture", "half a picture"],
)
def test_a_damaged_pool_is_refused(tmp_path, harm, file):
    pool = write(tmp_path, success(TASKS[0], [1]))
    harm(pool)
    with pytest.raises(ConfigError, match=file):
        read_pool(pool, TASKS)


def damage_row(pool: Path, change: Callable[[dict[str, Any]], None]):
    """Change a row, and the pool's hash of its rows."""
    rows = [json.loads(line) for line in (pool / "rows.jsonl").read_text().splitlines()]
    change(rows[1])
    (pool / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    damage_about(pool, sha256=sha256((pool / "rows.jsonl").read_bytes()).hexdigest())


@pytest.mark.parametrize(
    "change",
    [
        lambda row: row.update(reward=5.0),
        lambda row: row.update(reward=float("nan")),
        lambda row: row.update(reward="x"),
        lambda row: row.update(reward=True),
        lambda row: row.update(ending="nowhere"),
        lambda row: row.pop("turns"),
        lambda row: row.update(turns=7),
        lambda row: row["turns"][0].update(tokens=[]),
        lambda row: row["turns"][0].update(tokens=[-1, 1]),
        lambda row: row["turns"][0].update(tokens="x"),
        lambda row: row["turns"][0].update(logprobs=[0.0]),
        lambda row: row["turns"][0].update(entropies=[0.0, float("inf")]),
    ],
)
def test_a_wrong_row_is_refused_by_its_number(tmp_path, change):
    pool = write(tmp_path, success(TASKS[0], [1]), success(TASKS[1], [2]))
    damage_row(pool, change)
    with pytest.raises(ConfigError, match=r"rows\.jsonl, row 2"):
        read_pool(pool, TASKS)


def test_a_token_that_the_model_does_not_have_is_refused(tmp_path):
    pool = write(tmp_path, success(TASKS[0], [1]))
    largest = max(int(token) for turn in read_pool(pool, TASKS).successes[0].turns for token in turn.reply.tokens)
    assert read_pool(pool, TASKS, vocabulary=largest + 1).successes
    with pytest.raises(ConfigError, match="row 1"):
        read_pool(pool, TASKS, vocabulary=largest)


def test_another_picture_in_its_place_is_refused(tmp_path):
    pool = write(tmp_path, success(TASKS[0], [1, 2]))
    one, other = sorted(pool.glob("screens/*/*.png"))
    shutil.copy(one, other)
    with pytest.raises(ConfigError, match="pixels"):
        read_pool(pool, TASKS)


def test_a_pool_appears_whole_and_replaces_the_one_before(tmp_path):
    pool = write(tmp_path, success(TASKS[0], [1]))
    bad = success(TASKS[0], [1])
    seen = bad.turns[0].observation._replace(screenshot=np.zeros((4, 4), dtype=np.float32))
    grey = Trajectory(bad.attempt, (Turn(seen, bad.turns[0].reply),), Ending.DONE, 1.0, None, 0.0, 0.0)
    with pytest.raises(ValueError, match="wanted uint8"):
        write(tmp_path, grey)
    assert len(read_pool(pool, TASKS).successes) == 1
    write(tmp_path, success(TASKS[1], [2]), success(TASKS[1], [3]))
    assert len(read_pool(pool, TASKS).successes) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pool"]


def test_what_a_surrogate_did_cannot_be_stored(tmp_path):
    drawn = success(TASKS[0], [1])
    bare = Turn(drawn.turns[0].observation, Reply("work", 0, 0, 0, 10, 5))
    with pytest.raises(ValueError, match="has no tokens"):
        write(tmp_path, Trajectory(drawn.attempt, (bare,), Ending.DONE, 1.0, None, 0.0, 0.0))


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError):
        write_pool(tmp_path / "file" / "pool", [], writes={}, source={})


def test_the_meaning_of_tokens_is_that_of_vocabulary_grammar_and_screen():
    pytest.importorskip("torch", reason="needs the extra `train`")
    from dartsim.real.pool_files import token_meaning
    from dartsim.real.vlm import build, tiny

    clicker = token_meaning(build(tiny()), 112)
    assert clicker == token_meaning(build(tiny(family="qwen3_vl", max_images=3), seed=5), 112)
    assert clicker["num_actions"] == 9
    for other in (token_meaning(build(tiny()), 224), token_meaning(build(tiny(columns=4)), 112)):
        assert other != clicker
