import zipfile

import pytest

from dartsim.real.osworld.metrics import NATIVE

openpyxl = pytest.importorskip("openpyxl")

ROWS = [["name", "n", "when"], ["a", 1, "x"], ["b", 2.123449, None]]
DATA = {"type": "sheet_data", "sheet_idx0": 0, "sheet_idx1": "EI0"}


def save(path, **sheets):
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return str(path)


def compare(result, expected, *rules):
    assert NATIVE["compare_table"].takes({"rules": list(rules)})
    return NATIVE["compare_table"].run(result, expected, rules=rules)


def same_data(tmp_path, one, other, **rule):
    return compare(save(tmp_path / "r.xlsx", S=one), save(tmp_path / "e.xlsx", S=other), DATA | rule)


def changed(row, column, value):
    rows = [list(each) for each in ROWS]
    rows[row][column] = value
    return rows


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (ROWS, 1),
        ([*ROWS, [None, None, None]], 1),
        ([[*row, None] for row in ROWS], 1),
        (changed(2, 1, 2.12345), 1),
        (changed(2, 1, 2.1236), 0),
        (changed(1, 1, 1.0), 1),
        (changed(1, 1, "1"), 1),
        (changed(1, 1, "one"), 0),
        (changed(2, 2, "NA"), 1),
        (changed(2, 2, "y"), 0),
        (changed(0, 0, "Name"), 0),
        (changed(1, 0, True), 0),
        (ROWS[:2], 0),
        ([[]], 0),
    ],
)
def test_sheets_are_compared_as_pandas_reads_them(tmp_path, other, same):
    assert same_data(tmp_path, ROWS, other) == same


def test_digits_can_be_chosen_and_text_columns_are_not_rounded(tmp_path):
    assert same_data(tmp_path, changed(2, 1, 2.13), changed(2, 1, 2.09), precision=1) == 1
    mixed = [["n"], ["x"], [1.00001]], [["n"], ["x"], [1.00002]]
    assert same_data(tmp_path, *mixed) == 0


def test_sheets_are_found_by_number_and_name(tmp_path):
    result, gold = save(tmp_path / "r.xlsx", A=ROWS, B=[["b"]]), save(tmp_path / "e.xlsx", X=[["b"]], Y=ROWS)
    assert compare(result, gold, DATA | {"sheet_idx0": "RNB", "sheet_idx1": "ENX"}) == 1
    assert compare(result, gold, DATA | {"sheet_idx0": "RI0", "sheet_idx1": "EI1"}) == 1
    assert compare(result, gold, DATA | {"sheet_idx0": "RI1", "sheet_idx1": "RNB"}) == 1
    assert compare(result, gold, DATA | {"sheet_idx0": 7}) == 0
    assert compare(result, gold, DATA | {"sheet_idx0": "RNnone"}) == 0
    assert compare(result, gold, {"type": "sheet_name"}) == 0
    assert compare(result, result, {"type": "sheet_name"}) == 1


@pytest.mark.parametrize("index", ["ENnone", "EI9", "Sheet1", "RX0"])
def test_a_fault_of_the_task_is_an_error(tmp_path, index):
    result = save(tmp_path / "r.xlsx", A=ROWS)
    with pytest.raises(ValueError, match=r"the expected book has no sheet|wanted RI or RN"):
        compare(result, result, DATA | {"sheet_idx1": index})


def test_printed_sheets(tmp_path):
    result, gold = save(tmp_path / "r.xlsx", A=ROWS), save(tmp_path / "e.xlsx", A=ROWS)
    rule = {"type": "sheet_print", "sheet_idx0": "RNA", "sheet_idx1": "ENA"}
    assert compare(result, gold, rule) == 0
    (tmp_path / "r-A.csv").write_bytes("name,Ä\n a \n\n".encode("latin-1"))
    assert compare(result, gold, rule) == 0
    (tmp_path / "e-A.csv").write_text("NAME,Ä\na\n")
    assert compare(result, gold, rule) == 0
    assert compare(result, gold, rule | {"ignore_case": True}) == 1


@pytest.mark.parametrize(
    ("rule", "same"),
    [
        ({"type": "exact_match"}, 0),
        ({"type": "exact_match", "ignore_case": True, "trim_leadings": "+ "}, 1),
        ({"type": "exact_match", "normalization": [["+ Rd", "road"]]}, 1),
        ({"type": "exact_match", "ignore_chars": "+ R", "trim_trailings": ""}, 0),
        ({"type": "includes"}, 0),
        ({"type": "fuzzy_match", "threshold": 50}, 0),
        ({"type": "fuzzy_match", "threshold": 20}, 1),
        ({"type": "included_by", "trim_leadings": "+ R"}, 1),
    ],
)
def test_fuzzy_ranges(tmp_path, rule, same):
    result = save(tmp_path / "r.xlsx", A=[["h"], ["+ Rd"], [3]])
    gold = save(tmp_path / "e.xlsx", A=[["h"], ["rd" if "normalization" not in rule else "road"], [3.0]])
    outer = {"type": "sheet_fuzzy", "sheet_idx0": 0, "sheet_idx1": "EI0", "rules": [{"range": ["A1:A3"]} | rule]}
    assert compare(result, gold, outer) == same


def test_cells_panes_zoom_and_lines(tmp_path):
    path = save(tmp_path / "r.xlsx", A=[["h", 5], ["x", None]])
    book = openpyxl.load_workbook(path)
    book["A"].freeze_panes = "A2"
    book["A"].sheet_view.zoomScale = 260
    book["A"].row_dimensions[2].hidden = True
    book["A"].column_dimensions["B"].width = 30
    book.save(path)
    plain = save(tmp_path / "e.xlsx", A=[["h", 5], ["x", None]])
    both = {"sheet_idx0": 0, "sheet_idx1": "EI0"}
    cell = {"type": "check_cell", "sheet_idx": 0, "coordinate": "B1", "props": {"value": {"method": "eq", "ref": 5.0}}}
    assert compare(path, None, cell) == 1
    assert compare(path, None, cell | {"coordinate": "B2"}) == 0
    assert compare(path, None, cell | {"sheet_idx": 3}) == 0
    zoom = {"type": "zoom", "sheet_idx": 0, "method": "gt", "ref": 250}
    assert [compare(each, None, zoom) for each in (path, plain)] == [1, 0]
    for rule in (
        {"type": "freeze"},
        {"type": "row_props", "props": ["hidden"]},
        {"type": "col_props", "props": ["width"]},
    ):
        assert compare(path, path, both | rule) == 1
        assert compare(path, plain, both | rule) == 0


def test_all_rules_must_hold(tmp_path):
    path = save(tmp_path / "r.xlsx", A=ROWS)
    zoom = {"type": "zoom", "sheet_idx": 0, "method": "gt", "ref": 250}
    assert compare(path, path, DATA) == 1
    assert compare(path, path, DATA, zoom) == 0


@pytest.mark.parametrize(
    "rule",
    [
        {"type": "chart"},
        {"type": "pivot_table"},
        {"type": "style"},
        {"type": "check_cell", "props": {"font_bold": {"method": "eq", "ref": True}}},
        {"type": "check_cell", "props": {"value": {"method": "spreadsheet_range", "ref": []}}},
    ],
)
def test_rules_left_to_desktop_env(rule):
    assert not NATIVE["compare_table"].takes({"rules": [DATA, rule]})
    assert NATIVE["compare_table"].takes({"rules": [DATA]})


def test_archives_that_are_no_books_score_0(tmp_path):
    with zipfile.ZipFile(tmp_path / "r.xlsx", "w") as archive:
        archive.writestr("../evil", "x")
    assert compare(str(tmp_path / "r.xlsx"), None, {"type": "sheet_name"}) == 0


def test_csv_files(tmp_path):
    for name, text in (("r", "a,b\n1,2 \n"), ("g", "a,b\n1,2\n"), ("h", "A,B\n1,2\n")):
        (tmp_path / name).write_text(text)
    r, g, h = (str(tmp_path / name) for name in "rgh")
    run = NATIVE["compare_csv"].run
    assert run(r, g) == 0
    assert run(r, [h, g], strict=False) == 1
    assert run(r, h, strict=False, ignore_case=True) == 1
    check = NATIVE["check_csv"].run
    assert check(g, {"expect": [{"a": "1"}], "unexpect": [{"b": "3"}]}) == 1
    assert check(g, {"expect": [{"a": "1", "b": "3"}]}) == 0
    assert check(g, {"unexpect": [{"b": "2"}]}) == 0
