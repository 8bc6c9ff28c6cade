import json
import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.real.osworld.known import METRICS
from dartsim.real.osworld.metrics import KNOWN, NATIVE
from dartsim.real.osworld.metrics.match import likeness, matches


def score(name, *arguments, **options):
    assert NATIVE[name].takes(options)
    return NATIVE[name].run(*arguments, **options)


@pytest.mark.parametrize(
    ("name", "arguments", "options", "value"),
    [
        ("exact_match", ("a\n", {"expected": "a\n"}), {}, 1),
        ("exact_match", (None, {"expected": "a"}), {}, 0),
        ("match_in_list", ("a", {"expected": ["a", "b"]}), {}, 1),
        ("match_in_list", ("c", {"expected": ["a", "b"]}), {}, 0),
        ("is_in_list", (["a"], {"expected": "a"}), {}, 1),
        ("is_in_list", ("xay", {"expected": "a"}), {}, 1),
        ("is_in_list", (None, {"expected": "a"}), {}, 0),
        ("literal_match", (1, "1"), {}, 1),
        ("literal_match", ("A", "a"), {"ignore_case": True}, 1),
        ("literal_match", (["A", 1], ["a", "1"]), {"type": "list", "ignore_case": True}, 1),
        ("literal_match", (["a"], ["a", "b"]), {"type": "list"}, 0),
        ("literal_match", ("a", ["a"]), {"type": "list"}, 0),
        ("fuzzy_match", ("abcd", {"expected": "abce"}), {}, 0.75),
        ("fuzzy_match", (None, {"expected": "abce"}), {}, 0),
        ("check_include_exclude", ("a b", {"include": ["a"], "exclude": ["c"]}), {}, 1),
        ("check_include_exclude", ("a c", {"include": ["a"], "exclude": ["c"]}), {}, 0),
        ("check_include_exclude", (None, {"exclude": ["c"]}), {}, 0),
        ("check_include_exclude", ("", {}), {}, 1),
        ("is_extension_installed", ("a\nb", {"type": "contain", "expected": "b"}), {}, 1),
        ("is_extension_installed", ("a\nb", {"type": "not_contain", "expected": "b"}), {}, 0),
        ("is_extension_installed", (None, {"type": "not_contain", "expected": "b"}), {}, 0),
        ("is_in_vm_clickboard", ({"expected": ["a", "b"]}, "b a"), {}, 1),
        ("is_in_vm_clickboard", ({"expected": "c"}, "b a"), {}, 0),
        ("is_expected_url_pattern_match", ("https://a/b", {"expected": ["^https", "b$"]}), {}, 1),
        ("is_expected_url_pattern_match", ({"url": "https://a/b"}, {"expected": ["c"]}), {}, 0),
        ("is_expected_url_pattern_match", (None, {"expected": []}), {}, 0),
        ("check_direct_json_object", ("{'a': 1}", {"expected": {"a": 1}}), {}, 1),
        ("check_direct_json_object", ({"a": 1, "b": 2}, {"expected": {"a": 1}}), {}, 1),
        ("check_direct_json_object", ({"a": 1}, {"expected": {"a": 1, "b": None}}), {}, 1),
        ("check_direct_json_object", ({"a": 1}, {"expected": {"b": 1}}), {}, 0),
        ("check_direct_json_object", ("no json", {"expected": {"b": 1}}), {}, 0),
        ("check_direct_json_object", ("[1]", {"expected": {"b": 1}}), {}, 0),
        ("check_direct_json_object", (None, {"expected": {}}), {}, 0),
        (
            "check_direct_json_object",
            ({"a": "__EVALUATION_FAILED__"}, {"expected": {"a": "__EVALUATION_FAILED__"}}),
            {},
            0,
        ),
        ("check_direct_json_object", ({"a": "xyz"}, {"expected": {"a": "y"}, "expect_in_result": True}), {}, 1),
        ("check_direct_json_object", ({"a": ["y"]}, {"expected": {"a": ["x", "y"]}, "expect_in_result": True}), {}, 1),
        ("check_direct_json_object", ({"a": "z"}, {"expected": {"a": ["x", "y"]}, "expect_in_result": True}), {}, 0),
        ("check_direct_json_object", ({}, {"expected": {"a": "y"}, "expect_in_result": True}), {}, 0),
        ("check_gnome_favorite_apps", ("['b', 'a']", {"expected": ["a", "b"]}), {}, 1),
        ("check_gnome_favorite_apps", ("['a', 'a']", {"expected": ["a", "b"]}), {}, 0),
        ("check_gnome_favorite_apps", ("__import__('os').system('true')", {"expected": ["a"]}), {}, 0),
        ("is_utc_0", ("a\nb\nc\n Time zone: UTC (UTC, +0000)\nd",), {}, 1),
        ("is_utc_0", ("a\nb\nc\n Time zone: CET (CET, +0100)\nd",), {}, 0),
        ("is_utc_0", (None,), {}, 0),
        ("check_text_enlarged", ("1.25\n",), {}, 1),
        ("check_text_enlarged", ("",), {}, 0),
        ("check_moved_jpgs", ({"children": [{"name": "a"}, {"name": "b"}]}, {"expected": ["b", "a"]}), {}, 1),
        ("check_moved_jpgs", ({"children": [{"name": "a"}]}, {"expected": ["b", "a"]}), {}, 0),
        ("check_moved_jpgs", (None, {"expected": []}), {}, 0),
        ("is_vlc_fullscreen", ({"width": 2, "height": 1}, {"width": 2, "height": 1}), {}, 1),
        ("is_vlc_fullscreen", (None, {"width": 2, "height": 1}), {}, 0),
        ("compare_answer", ("a", {"expected": "a"}), {}, 1),
    ],
)
def test_values(name, arguments, options, value):
    assert score(name, *arguments, **options) == value


A, B = "first line\nsecond  Line\n", "first line\nsecond Line"


@pytest.mark.parametrize(
    ("name", "found", "expected", "options", "value"),
    [
        ("compare_text_file", A, A, {}, 1),
        ("compare_text_file", A, B, {}, 0),
        ("compare_text_file", A, B, {"ignore_blanks": True}, 1),
        ("compare_text_file", A, B.lower(), {"ignore_blanks": True, "ignore_case": True}, 1),
        ("compare_text_file", "a\r\nb", "a\nb", {}, 1),
        ("diff_text_file", "a\nb\nc\nd\n", "a\nb\nc\nx\n", {}, 0.75),
        ("compare_config", "a", {"expected": "a"}, {}, 1),
        ("compare_config", '{"a": 1, "b": 2}', {"expected": '{"a": 1}'}, {}, 0),
        ("compare_config", '{"a": 1, "b": 2}', {"expected": '{"a": 1}'}, {"containment_ok": True}, 1),
        ("compare_config", '{"b": 2}', {"expected": '{"a": 1}'}, {"containment_ok": True}, 0),
        ("compare_config", "x\na=1\n", {"expected": "a=1"}, {"containment_ok": True}, 1),
        ("file_contains", "abc", {"expected": ["a", "c"]}, {}, 1),
        ("file_contains", "abc", {"expected": ["a", "d"]}, {}, 0),
        ("check_list", "a1\nb2\n", {"expect": ["^a", r"\d$"], "unexpect": ["c"]}, {}, 1),
        ("check_list", "a1\nb2\n", {"expect": ["c"]}, {}, 0),
        ("check_list", "a1\nb2\n", {"unexpect": ["^b"]}, {}, 0),
        ("check_line_number", "12:34:56 x\nx\n23:59:60\n", {"expected": "2"}, {}, 1),
        ("compare_terminal_and_txt", "a", {"text": "a"}, {}, 0),
        ("compare_python_pure_text", "#!/usr/bin/python\n\nx = 1   \n\ty\n", "x = 1\n    y", {}, 1),
        ("compare_python_pure_text", "x = 1 # a", "x = 1", {}, 0),
        ("check_json_settings", '{"a": 1, "b": 2}', {"expected": {"a": 1}}, {}, 1),
        ("check_json_settings", '{"b": 2}', {"expected": {"a": 1}}, {}, 0),
        ("check_json_settings", "[", {"expected": {"a": 1}}, {}, 0),
        ("check_json_keybindings", '// mine\n[{"key": "f"}]', {"expected": {"key": "f"}}, {}, 1),
        ("check_json_keybindings", '[{"key": "g"}]', {"expected": {"key": "f"}}, {}, 0),
        ("check_json", '{"a": {"b": 3}}', {"expect": [{"key": ["a", "b"], "method": "ge", "ref": 3}]}, {}, 1),
        ("check_json", '{"a": {}}', {"expect": [{"key": ["a", "b"], "method": "ne", "ref": 3}]}, {}, 0),
        ("check_json", '{"a": [5]}', {"unexpect": [{"key": ["a", 0], "method": "eq", "ref": 5}]}, {}, 0),
        ("check_json", "no json", {}, {}, 0),
        ("check_qt_max_volume", "[qt]\n#qt-max-volume=125\n", {"expected_qt_max_volume": 125}, {}, 1),
        ("check_qt_max_volume", "[qt]\nqt-max-volume=200\n", {"expected_qt_max_volume": "200"}, {}, 1),
        ("check_qt_max_volume", "", {"expected_qt_max_volume": 125}, {}, 1),
        ("check_qt_bgcone", "qt-bgcone=0\n", {"expected_qt_bgcone": 0}, {}, 1),
        ("check_qt_minimal_view", "qt-minimal-view=1\n", {"expected_qt_minimal_view": 0}, {}, 0),
        ("check_play_and_exit", "play-and-exit=0\n", {"expected_play_and_exit": 0}, {}, 1),
        ("check_global_key_play_pause", "global-key-play-pause=\n", {"expected_global_key_play_pause": 0}, {}, 1),
        ("check_global_key_play_pause", "global-key-play-pause=F9\n", {"expected_global_key_play_pause": 1}, {}, 1),
        ("check_qt_slider_colours", "qt-slider-colours=1;2;3;99;0;0\n", {"type": "blackish"}, {}, 1),
        ("check_qt_slider_colours", "", {"type": "blackish"}, {}, 0),
        (
            "check_qt_slider_colours",
            "qt-slider-colours=1\n",
            {"type": "match", "expected_qt_slider_colours": "1"},
            {},
            1,
        ),
        ("is_vlc_recordings_folder", "input-record-path=/a b\n", {"recording_file_path": "/a b"}, {}, 1),
        ("is_vlc_recordings_folder", "#input-record-path=/a\n", {"recording_file_path": "/a"}, {}, 0),
        ("check_config_status", '# x\n(theme "Light")\n', {"key": "theme", "value": '"Light"'}, {}, 1),
        ("check_config_status", "(a b c yes)\n\n", {"key": ["a", "b"], "value": "yes"}, {}, 1),
        ("check_config_status", "(a x yes)\n", {"key": ["a", "b"], "value": "yes"}, {}, 0),
        (
            "check_thunderbird_prefs",
            'user_pref("a.b", true);\nuser_pref("c", "x");\n',
            {"expect": {"a.b": {"method": "eq", "ref": True}}, "unexpect": {"c": {"method": "re", "ref": "y"}}},
            {},
            1,
        ),
        ("check_thunderbird_prefs", "", {"expect": {"a": {"method": "eq", "ref": 1}}}, {}, 0),
        (
            "check_thunderbird_filter",
            'name="F"\nenabled="yes"\naction="Move"\ncondition="AND (subject,contains,\\"x\\")"\n',
            {"expect": [{"enabled": "yes", "condition": ['AND (subject,contains,"x")']}]},
            {},
            1,
        ),
        ("check_thunderbird_filter", 'name="F"\nenabled="yes"\n', {"expect": [{"name": "F"}]}, {}, 0),
    ],
)
def test_text_files(tmp_path, name, found, expected, options, value):
    path = tmp_path / "result"
    path.write_bytes(found.encode())
    if isinstance(expected, str):
        (tmp_path / "gold").write_text(expected)
        expected = str(tmp_path / "gold")
    assert score(name, str(path), expected, **options) == value


FILE_METRICS = """
    check_config_status check_csv check_global_key_play_pause check_json check_json_keybindings check_json_settings
    check_line_number check_list check_one_instance_when_started_from_file check_play_and_exit check_qt_bgcone
    check_qt_max_volume check_qt_minimal_view check_qt_slider_colours check_thunderbird_filter check_thunderbird_prefs
    compare_config compare_csv compare_python_pure_text compare_table compare_text_file diff_text_file file_contains
    is_vlc_recordings_folder run_sqlite3
"""


@pytest.mark.parametrize("name", FILE_METRICS.split())
def test_a_file_that_is_gone_or_is_junk_scores_0_and_raises_nothing(tmp_path, name):
    if NATIVE[name].missing():
        pytest.skip(f"{name} needs {NATIVE[name].missing()}")
    (tmp_path / "junk").write_bytes(b"\xff\xfe\x00junk")
    (tmp_path / "gold").write_text("gold")
    rules = {"expected": "1", "expect": [], "key": "k", "value": "v", "sql": "SELECT 1 FROM t", "type": "blackish"}
    rules |= {"recording_file_path": "/r", **{f"expected_{name[6:]}": "1"}}
    gold = str(tmp_path / "gold") if name.startswith(("compare_", "diff_")) and name != "compare_config" else rules
    options = {"rules": [{"type": "sheet_name"}]} if name == "compare_table" else {}
    for result in (None, str(tmp_path / "gone"), str(tmp_path / "junk")):
        assert score(name, result, gold, **options) == 0.0


def test_terminal_text_equals_a_file(tmp_path):
    (tmp_path / "out.txt").write_text("$ ls\n")
    assert score("compare_terminal_and_txt", str(tmp_path / "out.txt"), "$ ls\n") == 1


def test_one_json_file_in_another(tmp_path):
    for name, value in (("gold", {"a": 1}), ("mine", {"a": 1, "b": 2})):
        (tmp_path / name).write_text(json.dumps(value))
    gold, mine = str(tmp_path / "gold"), str(tmp_path / "mine")
    assert score("is_included_all_json_objects", gold, mine) == 1
    assert score("is_included_all_json_objects", mine, gold) == 0


def test_a_database_is_only_read(tmp_path):
    path = tmp_path / "d b?.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE t (n)")
        database.execute("INSERT INTO t VALUES (1)")
    assert score("run_sqlite3", str(path), {"sql": "SELECT count(*) = 1 FROM t"}) == 1
    assert score("run_sqlite3", str(path), {"sql": "SELECT n FROM t WHERE n > 1"}) == 0
    assert score("run_sqlite3", str(path), {"sql": "DELETE FROM t"}) == 0
    assert score("run_sqlite3", str(path), {"sql": "SELECT count(*) FROM t"}) == 1


@pytest.mark.parametrize(
    ("value", "method", "ref", "fits"),
    [
        (2, "eq", 2, True),
        (2, "lt", 3, True),
        ("2", "lt", 3, False),
        ("abc", "re", "^b", False),
        ("ABC", "re.I", "^a", True),
        ("x\nA", "re.I.M", "^a$", True),
        (None, "re", ".", False),
        ("1.005", "approx:0.01", 1.0, True),
        ("x", "approx:0.01", 1.0, False),
        (None, "approx:0.01", 1.0, False),
        (2, "range.te", [0, 2], True),
        (0, "range.te", [0, 2], False),
        ('"b,a"', "str_set_eq", ["a", "b"], True),
        ("b,a", "str_list_eq", ["a", "b"], False),
    ],
)
def test_rules(value, method, ref, fits):
    assert matches(value, {"method": method, "ref": ref}) is fits


def test_an_unknown_method_is_an_error():
    with pytest.raises(ValueError, match="found the method 'like'"):
        matches(1, {"method": "like", "ref": 1})


@given(st.text(alphabet="abc ", max_size=80), st.text(alphabet="abc ", max_size=80))
def test_likeness_is_that_of_rapidfuzz(one, other):
    fuzz = pytest.importorskip("rapidfuzz").fuzz
    assert likeness(one, other) == pytest.approx(fuzz.ratio(one, other) / 100, abs=1e-9)


TREE = """<desktop-frame xmlns:st="https://accessibility.ubuntu.example.org/ns/state">
<application name="a"><label st:showing="true">Hallo</label><label>Welt</label></application></desktop-frame>"""


@pytest.mark.parametrize(
    ("rules", "value"),
    [
        ([{"xpath": "//application[@name='a']"}], 1),
        ([{"xpath": "//application[@name='b']"}], 0),
        ([{"xpath": "//label[@st:showing='true']", "text": "Hallo", "exact": True}], 1),
        ([{"xpath": "//label", "text": "Welt"}], 1),
        ([{"xpath": "//label[1]", "text": "Hello", "exact": False}], 0.8),
        ([{"xpath": "//application"}, {"xpath": "//label[1]", "text": "Hello", "exact": False}], 0.8),
    ],
)
def test_accessibility_trees(rules, value):
    pytest.importorskip("lxml")
    assert score("check_accessibility_tree", TREE, rules) == pytest.approx(value)
    assert score("check_accessibility_tree", None, rules) == 0


def test_a_tree_brings_no_files_of_this_host(tmp_path):
    pytest.importorskip("lxml")
    (tmp_path / "secret").write_text("secret")
    uri = (tmp_path / "secret").as_uri()
    evil = f'<!DOCTYPE t [<!ENTITY x SYSTEM "{uri}">]><t><label>&x;</label></t>'
    assert score("check_accessibility_tree", evil, [{"xpath": "//label", "text": "secret"}]) == 0


def test_trees_by_css():
    pytest.importorskip("lxml")
    pytest.importorskip("cssselect")
    assert (
        score("check_accessibility_tree", TREE, [{"selectors": ["application[name=a] > label"], "text": "Welt"}]) == 1
    )


def test_options_that_a_metric_does_not_know_are_not_passed_over():
    assert not NATIVE["compare_text_file"].takes({"ignore_colour": True})
    assert not NATIVE["check_json"].takes({"is_yaml": True})
    assert NATIVE["check_json"].takes({"is_yaml": False})
    assert NATIVE["exact_match"].takes({})


def test_all_metrics_of_osworld_are_known():
    assert len(METRICS) == 137
    assert set(NATIVE) <= KNOWN
    assert len(NATIVE) == 44


def test_an_endless_view_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("dartsim.real.osworld.metrics.text.QUERY_SECONDS", 0.05)
    path = tmp_path / "endless.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "CREATE VIEW t AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c"
        )
    assert score("run_sqlite3", str(path), {"sql": "SELECT count(*) FROM t"}) == 0


def test_a_text_without_end_has_little_in_common(tmp_path):
    (tmp_path / "gold").write_text("a\nb\n")
    (tmp_path / "mine").write_text("a\nb\n" * 20_000)
    assert score("diff_text_file", str(tmp_path / "mine"), str(tmp_path / "gold")) == 0
