"""An agent that writes hostile files: every metric in use, each with every class of attack on its kind of input.

Each attack is refused or harmless: it scores no more than a desktop that was left as it was, nothing outside the
sandbox changes, and the next score is right. ``conftest.py`` has the table of attacks.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from dartsim.core.errors import DartsimError
from dartsim.real.scoring import FileInput, SandboxPool, ScoreFault
from dartsim.real.scoring.container import open_pool
from dartsim.real.scoring.sandbox import ScoreLimits

HOME = os.environ.get("DARTSIM_EVALUATOR", "")
MARK = Path("/tmp/dartsim-red-team-was-here")
LIMITS = ScoreLimits(metric_seconds=30.0, cpu_seconds=1, memory_mib=512, scratch_mib=128)
PATTERN = "^(a+)+b$"
"""Takes time exponential in the length of what it nearly matches."""
GOLD = "the expected file"

Metrics = dict[str, tuple[str, Any, dict[str, Any]]]

OWN: Metrics = {
    "check_list": ("text", {"expect": [PATTERN]}, {}),
    "compare_text_file": ("text", GOLD, {"ignore_blanks": True, "ignore_case": True}),
    "file_contains": ("text", {"expected": ["one two"]}, {}),
}
"""Metric: its kind of file, what it expects, and its options."""
DESKTOP_ENV: Metrics = {
    **OWN,
    **dict.fromkeys(
        (
            "check_brightness_decrease_and_structure_sim",
            "check_contrast_increase_and_structure_sim",
            "check_file_exists_and_structure_sim",
            "check_green_background",
            "check_image_mirror",
            "check_palette_and_structure_sim",
            "check_saturation_increase_and_structure_sim",
            "check_structure_sim",
            "check_structure_sim_resized",
            "compare_images",
        ),
        ("png", GOLD, {}),
    ),
    "check_image_size": ("png", {"height": 7}, {}),
    "check_textbox_on_leftside": ("png", None, {}),
    "check_triangle_position": ("png", None, {}),
    **dict.fromkeys(
        (
            "check_italic_font_size_14",
            "compare_docx_files",
            "compare_docx_images",
            "compare_docx_tables",
            "compare_line_spacing",
            "compare_subscript_contains",
            "evaluate_colored_words_in_tables",
            "evaluate_strike_through_last_paragraph",
        ),
        ("docx", GOLD, {}),
    ),
    "check_tabstops": ("docx", GOLD, {"word_number_split_by_tabstop": 3, "index": 0}),
    "compare_unique_train_records": ("docx", [GOLD, GOLD], {}),
    "compare_font_names": ("docx", {"font_name": "Times New Roman"}, {}),
    "contains_page_break": ("docx", {"page_break_count": 1}, {}),
    "has_page_numbers_in_footers": ("docx", None, {}),
    "is_first_line_centered": ("docx", None, {}),
    "check_highlighted_words": ("odt", GOLD, {}),
    "check_image_stretch_and_center": ("pptx", GOLD, {}),
    "compare_pptx_files": ("pptx", GOLD, {}),
    "check_page_number_colors": ("pptx", {"color": "red"}, {}),
    "check_slide_orientation_Portrait": ("pptx", None, {}),
    "check_transition": ("pptx", {"slide_idx": 0, "transition_type": "dissolve"}, {}),
    "evaluate_presentation_fill_to_rgb_distance": ("pptx", {"rgb": [0, 0, 255], "original_rgb": [0, 0, 1]}, {}),
    "compare_table": ("xlsx", GOLD, {"rules": [{"type": "sheet_data", "sheet_idx0": 0, "sheet_idx1": "EI0"}]}),
    "compare_csv": ("csv", GOLD, {}),
    "check_csv": ("csv", {"expect": [{"number": "7"}]}, {}),
    "check_pdf_pages": ("pdf", {"relation": "eq", "ref_value": 7}, {}),
    "compare_pdfs": ("pdf", GOLD, {}),
    "compare_audios": ("wav", GOLD, {}),
    "compare_videos": ("mp4", GOLD, {}),
    "run_sqlite3": ("sqlite", {"sql": "SELECT SUM(value) = 1 FROM answers"}, {}),
    "compare_archive": ("tar", GOLD, {"file_type": "text", "file_path": ""}),
    "compare_zip_files": ("zip", GOLD, {}),
    "check_json": ("json", {"expect": [{"key": ["key"], "method": "re", "ref": PATTERN}]}, {}),
    "check_json_keybindings": ("json", {"expected": {"key": "ctrl+f"}}, {}),
    "check_json_settings": ("json", {"expected": {"key": "value"}}, {}),
    "compare_config": ("json", {"expected": "{}"}, {}),
    "check_auto_saving_time": ("xml", {"minutes": 3}, {}),
    "check_presenter_console_disable": ("xml", None, {}),
    "find_default_font": ("xml", {"font_name": "Times New Roman"}, {}),
    "is_vlc_playing": ("xml", {"type": "file_name", "file_name": "x.mp4"}, {}),
    "check_config_status": ("text", {"type": "key-value", "key": "undo-levels", "value": "100"}, {}),
    "check_global_key_play_pause": ("text", {"expected_global_key_play_pause": 1}, {}),
    "check_one_instance_when_started_from_file": ("text", {"expected_one_instance_when_started_from_file": 0}, {}),
    "check_qt_bgcone": ("text", {"expected_qt_bgcone": 0}, {}),
    "check_qt_max_volume": ("text", {"expected_qt_max_volume": 200}, {}),
    "check_qt_minimal_view": ("text", {"expected_qt_minimal_view": 1}, {}),
    "check_qt_slider_colours": ("text", {"type": "blackish"}, {}),
    "is_vlc_recordings_folder": ("text", {"recording_file_path": "/x"}, {}),
    "check_thunderbird_filter": ("text", {"expect": [{"enabled": "yes"}]}, {}),
    "check_thunderbird_prefs": ("text", {"expect": {"a": {"method": "re", "ref": PATTERN}}}, {}),
}

VALUES: dict[str, tuple[Any, Any]] = {
    "check_accessibility_tree": ([{"selectors": ["item[name=missing]"]}], "<a/>"),
    "check_direct_json_object": ({"expected": {"a": "b"}}, {}),
    "check_font_size": ({"type": "range", "min": 16, "max": 99}, {"default_font_size": 1}),
    "check_gnome_favorite_apps": ({"expected": ["a"]}, "['b']"),
    "check_include_exclude": ({"include": ["done"], "exclude": []}, ""),
    "check_left_panel": (None, "<a/>"),
    "check_moved_jpgs": ({"expected": ["a.jpg"]}, {"children": []}),
    "exact_match": ({"expected": "a"}, "b"),
    "is_added_to_steam_cart": ({"items": ["a"]}, {"content": ""}),
    "is_expected_active_tab": ({"type": "url", "url": "https://a.example"}, "https://b.example"),
    "is_expected_active_tab_approximate": ({"type": "url", "url": "https://a.example"}, "https://b.example"),
    "is_expected_bookmarks": (
        {"type": "bookmark_bar_folders_names", "names": ["a"]},
        {"bookmark_bar": {"children": []}},
    ),
    "is_expected_tabs": ({"type": "url", "urls": ["https://a.example"]}, []),
    "is_expected_url_pattern_match": ({"expected": [PATTERN]}, "https://b.example"),
    "is_extension_installed": ({"type": "contain", "expected": "yes"}, ""),
    "is_in_list": ({"expected": "yes"}, []),
    "is_shortcut_on_desktop": ({"type": "name", "name": "a"}, {}),
    "is_utc_0": (None, "a\nb\nc\nd"),
    "is_vlc_fullscreen": ({"width": 1, "height": 1}, {"width": 2, "height": 1}),
    "match_in_list": ({"expected": ["a"]}, "b"),
}
"""Metrics of values that a getter gives: what they expect, and the value of an untouched desktop."""
ABSENCES = {
    "check_history_deleted": ({"type": "keywords", "keywords": ["a"]}, [["a", "a", 1]]),
    "is_cookie_deleted": ({"type": "domains", "domains": ["a"]}, [["", "a"]]),
}
"""Metrics that something is gone: an empty value solves them."""
HOSTILE_VALUES: dict[str, Any] = {
    "long": "a" * 2**22,
    "pattern food": "a" * 40 + "!",
    "not finite": [float("nan"), float("inf"), 1e308],
    "huge number": 10**300,
    "special": {"$file": "/etc/passwd"},
    "blob": {"$blob": [0, ".."]},
    "levels": None,  # made below: JSON of 150 levels
    "entity bomb": '<!DOCTYPE r [<!ENTITY a "xxxxxxxxxx"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]><r>&b;</r>',
    "code": f"__import__('os').system('touch {MARK}')",
    "surrogate": "\ud800",
}
for _ in range(150):
    HOSTILE_VALUES["levels"] = [HOSTILE_VALUES["levels"]]


class Scores:
    """A pool of sandboxes on a loop of its own, and files of each kind, solved and untouched."""

    def __init__(self, run: Callable[..., Any], pool: SandboxPool, folder: Path, making: Any) -> None:
        self.run, self.pool, self.folder, self.making = run, pool, folder, making

    def file(self, state: str, kind: str) -> FileInput:
        suffix = {"text": "txt", "yaml": "txt"}.get(kind, kind)
        return FileInput(self.folder / state / f"file.{suffix}", f"answer.{suffix}")

    def score(self, name: str, answer: Any, expected: Any, options: dict[str, Any]) -> float | str:
        """Return a score, or the cause of a fault."""
        arguments = [answer] if expected is None else [answer, self._expected(expected, answer)]

        async def run() -> float | str:
            try:
                return await self.pool.run(lambda sandbox: sandbox.metric(name, arguments, options))
            except ScoreFault as fault:
                return fault.cause

        return self.run(run)

    def attacks(self, kind: str) -> Iterator[tuple[str, FileInput]]:
        untouched = self.file("untouched", kind)
        for attack, data in self.making(kind, untouched.path.read_bytes()):
            path = self.folder / "hostile" / f"{kind}-{attack}".replace("/", "")
            if not path.exists():
                path.write_bytes(data)
            yield attack, FileInput(path, untouched.name)

    def _expected(self, expected: Any, answer: FileInput) -> Any:
        if isinstance(expected, list):
            return [self._expected(each, answer) for each in expected] if GOLD in expected else expected
        if expected is not GOLD:
            return expected
        suffix = answer.name.rpartition(".")[2]
        return FileInput(self.folder / "solved" / f"file.{suffix}", f"gold.{suffix}")


@contextmanager
def opened(home: Path | None, folder: Path, making: Any) -> Iterator[Scores]:
    (folder / "hostile").mkdir()
    with start_blocking_portal() as portal:
        try:
            context = portal.wrap_async_context_manager(open_pool(home, size=2, limits=LIMITS))
            pool = context.__enter__()
        except DartsimError as error:
            pytest.skip(f"no sandbox can be started: {error}")
        try:
            yield Scores(portal.call, pool, folder, making)
        finally:
            context.__exit__(None, None, None)


@pytest.fixture(scope="module")
def own(tmp_path_factory, hostile_files) -> Iterator[Scores]:
    """Our own metrics, with texts."""
    folder = tmp_path_factory.mktemp("own")
    for state, words in (("solved", "one two three"), ("untouched", "nothing")):
        (folder / state).mkdir()
        (folder / state / "file.txt").write_text(words)
    with opened(None, folder, hostile_files) as scores:
        yield scores


@pytest.fixture(scope="module")
def osworld(tmp_path_factory, hostile_files) -> Iterator[Scores]:
    """``desktop-env``, where ``DARTSIM_EVALUATOR`` names its environment."""
    if not HOME:
        pytest.skip("no environment with desktop-env in DARTSIM_EVALUATOR")
    folder = tmp_path_factory.mktemp("osworld")
    for state in ("solved", "untouched"):
        (folder / state).mkdir()
        script = Path(__file__).with_name("good_files.py")
        subprocess.run([f"{HOME}/bin/python", "-I", script, folder / state, state], check=True, capture_output=True)
    with opened(Path(HOME), folder, hostile_files) as scores:
        yield scores


@pytest.fixture(autouse=True)
def nothing_outside() -> Iterator[None]:
    """No attack may leave its mark on this machine."""
    yield
    assert not MARK.exists()


def number(score: float | str) -> float:
    return 0.0 if isinstance(score, str) else score


def attack_with_files(scores: Scores, metrics: Metrics, name: str) -> None:
    kind, expected, options = metrics[name]
    untouched = scores.score(name, scores.file("untouched", kind), expected, options)
    solved = scores.score(name, scores.file("solved", kind), expected, options)
    for attack, answer in scores.attacks(kind):
        score = scores.score(name, answer, expected, options)
        assert number(score) <= number(untouched), (attack, score, untouched)
        assert score != "score_killed", attack  # what a pickle does once it is loaded
    assert scores.score(name, scores.file("solved", kind), expected, options) == solved


@pytest.mark.docker
@pytest.mark.parametrize("name", OWN)
def test_no_hostile_file_scores_in_our_own_metrics(own, name):
    attack_with_files(own, OWN, name)
    assert own.score("exact_match", "a", {"expected": "a"}, {}) == 1.0


@pytest.mark.docker
@pytest.mark.parametrize("name", ["check_include_exclude", "check_moved_jpgs", "exact_match"])
def test_no_hostile_value_scores_in_our_own_metrics(own, name):
    attack_with_values(own, name)


@pytest.mark.docker
@pytest.mark.parametrize("name", DESKTOP_ENV)
def test_no_hostile_file_scores_in_osworlds_metrics(osworld, name):
    attack_with_files(osworld, DESKTOP_ENV, name)


@pytest.mark.docker
@pytest.mark.parametrize("name", [*VALUES, *ABSENCES])
def test_no_hostile_value_scores_in_osworlds_metrics(osworld, name):
    attack_with_values(osworld, name)


def attack_with_values(scores: Scores, name: str) -> None:
    expected, untouched = VALUES.get(name) or ABSENCES[name]
    floor = 1.0 if name in ABSENCES else number(scores.score(name, untouched, expected, {}))
    assert floor == (name in ABSENCES)
    for attack, value in HOSTILE_VALUES.items():
        score = scores.score(name, value, expected, {})
        assert number(score) <= floor, (attack, score)


SQL = (
    f"ATTACH DATABASE '{MARK}' AS other",
    f"VACUUM INTO '{MARK}'",
    "ATTACH DATABASE '/scratch/escaped' AS other",
    "SELECT load_extension('/usr/lib/x86_64-linux-gnu/libc.so.6')",
    "SELECT readfile('/etc/passwd') IS NOT NULL",
    f"SELECT writefile('{MARK}', 'x')",
    "PRAGMA journal_mode = WAL",
    "WITH RECURSIVE n(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM n) SELECT COUNT(*) FROM n",
)


@pytest.mark.docker
@pytest.mark.parametrize("sql", SQL)
def test_the_sql_of_a_task_file_stays_in_the_sandbox(osworld, sql):
    score = osworld.score("run_sqlite3", osworld.file("untouched", "sqlite"), {"sql": sql}, {})
    assert number(score) == 0.0
