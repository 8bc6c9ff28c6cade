"""Spreadsheets as grids of cells; needs ``openpyxl``.

A grid is what pandas' ``read_excel`` sees, because OSWorld compares with pandas: cells in error and texts like
"NA" are empty, whole floats are integers, columns of numbers in quotes are numbers.
"""

from __future__ import annotations

import itertools
import math
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

from dartsim.real.osworld.archives import check_zip

Cell = Any
Grid = list[list[Cell]]

_EMPTY = frozenset(
    (
        "",
        "#N/A",
        "#N/A N/A",
        "#NA",
        "-1.#IND",
        "-1.#QNAN",
        "-NaN",
        "-nan",
        "1.#IND",
        "1.#QNAN",
        "<NA>",
        "N/A",
        "NA",
        "NULL",
        "NaN",
        "None",
        "n/a",
        "nan",
        "null",
    )
)


MAX_CELLS = 5_000_000
"""Of a sheet, from its first cell to its last. One key press in an empty sheet, and a letter: 17 thousand million."""


class TooLarge(Exception):
    """An agent left a file that is larger than any that could be right."""


class Book:
    """A spreadsheet file.

    Raises:
        OSError, ValueError, KeyError, zipfile.BadZipFile: If it is none, when first used.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @cached_property
    def values(self) -> Any:
        """The workbook with the values that formulas had when it was saved."""
        return self._load(data_only=True)

    @cached_property
    def layout(self) -> Any:
        """The workbook with its formulas and styles."""
        return self._load(data_only=False)

    def _load(self, *, data_only: bool) -> Any:
        import openpyxl

        data = self.path.read_bytes()
        check_zip(data, what=self.path.name)  # an agent may have made it
        return openpyxl.load_workbook(BytesIO(data), data_only=data_only)

    @property
    def names(self) -> list[str]:
        """Names of the sheets, in order."""
        return list(self.values.sheetnames)

    def grid(self, sheet: str) -> Grid:
        """Return a sheet's cells without empty rows and columns at its end; the first row is the header.

        Raises:
            TooLarge: If that were more cells than anyone fills in.
        """
        found = self.values[sheet]
        if found.max_row * found.max_column > MAX_CELLS:
            raise TooLarge(
                f"sheet {sheet} of {self.path.name} reaches to row {found.max_row}, column {found.max_column}"
            )
        rows = [list(row) for row in found.iter_rows()]
        while rows and all(_is_blank(cell) for cell in rows[-1]):
            rows.pop()
        width = max((number for row in rows for number, cell in enumerate(row, 1) if not _is_blank(cell)), default=0)
        return [[_value(cell, header=not number) for cell in row[:width]] for number, row in enumerate(rows)]

    def cell(self, sheet: str, place: str) -> Any:
        """Return the stored value of a cell: a float, a text, or None if it is empty. Dates are day numbers."""
        from openpyxl.utils.datetime import to_excel

        cell = self.values[sheet][place]
        if cell.value is None or isinstance(cell.value, bool):
            return None
        if cell.is_date:
            return float(to_excel(cell.value))
        return float(cell.value) if isinstance(cell.value, (int, float)) else str(cell.value)

    def printed(self, sheet: str) -> list[str] | None:
        """Return the lines of the sheet's export beside the book, ``<book>-<sheet>.csv``; None if there is none."""
        path = self.path.with_name(f"{self.path.stem}-{sheet}.csv")
        try:
            data = path.read_bytes()
        except OSError:
            return None
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            text = data.decode("latin-1")
        lines = [line.strip() for line in text.splitlines()]
        while lines and not lines[-1]:
            lines.pop()
        return lines


def read_grid(path: Path, number: int) -> Grid:
    """Return the cells of a book's sheet, counted from 0; none if the book has no such sheet."""
    book = Book(path)
    return book.grid(book.names[number]) if number < len(book.names) else []


def same_grid(one: Grid, other: Grid, *, digits: int) -> bool:
    """Whether two grids are equal, with columns of numbers rounded to so many decimal digits."""
    if not one or not other or not one[0] or not other[0]:
        return not any(map(len, one)) and not any(map(len, other))
    if [len(one), len(one[0])] != [len(other), len(other[0])] or one[0] != other[0]:
        return False
    columns = zip(zip(*one[1:], strict=True), zip(*other[1:], strict=True), strict=True)
    return all(_column(left, digits) == _column(right, digits) for left, right in columns)


def _is_blank(cell: Any) -> bool:
    return cell.value is None or cell.value == ""


def _value(cell: Any, *, header: bool) -> Cell:
    value = cell.value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if header:
        return None if value == "" else value
    if cell.data_type == "e" or (isinstance(value, str) and value in _EMPTY):
        return None
    return None if isinstance(value, float) and math.isnan(value) else value


def _column(cells: tuple[Cell, ...], digits: int) -> list[Any]:
    numbers = [_number(cell) for cell in cells]
    all_bool = all(isinstance(cell, bool) for cell in cells)
    if not all_bool and all(cell is None or number is not None for cell, number in zip(cells, numbers, strict=True)):
        return [None if number is None else _rounded(number, digits) for number in numbers]
    # True equals 1 in Python, and is another value in a sheet.
    return [(type(cell) is bool, cell) for cell in cells]


def _rounded(number: float, digits: int) -> float:
    return round(number * 10**digits) / 10**digits if abs(number) < 1e15 else number


def _number(cell: Cell) -> float | None:
    if not isinstance(cell, (int, float, str)):
        return None
    if isinstance(cell, str) and (not cell.strip() or any(mark in cell.lower() for mark in ("_", "inf", "nan"))):
        return None
    try:
        return float(cell)
    except ValueError:
        return None


def cells_of(ranges: list[str]) -> list[str]:
    """Return the places of all cells in some ranges, like ``["A1:B6"]``."""
    from openpyxl.utils import get_column_letter
    from openpyxl.worksheet.cell_range import CellRange

    found = (CellRange(part) for text in ranges for part in text.split())
    cells = itertools.chain.from_iterable(each.cells for each in found)
    return [f"{get_column_letter(column)}{row}" for row, column in cells]
