"""The documents of ``office_tasks``, and what they should become: ``python office_files.py FOLDER``.

Runs in the evaluator's environment, which has the packages that write them.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docx import Document
from openpyxl import Workbook
from openpyxl.styles import Font
from PIL import Image, ImageDraw
from pptx import Presentation

ROWS: list[list[Any]] = [
    ["Item", "Price", "Number"],
    ["Apple", 2, 10],
    ["Bread", 3, 4],
    ["Cheese", 9, 1],
    ["Apple", 2, 6],
    ["Tea", 5, 3],
]
LINES = ["Invitation", "The meeting is on Monday.", "Bring the report.", "Lunch is on Monday, too."]
SLIDES = [("Plan", "First step"), ("Budget", "Numbers follow")]


def book(name: str, change: Callable[[Any], None] = lambda sheet: None) -> None:
    """Write a book with one sheet, changed from ``ROWS``."""
    workbook = Workbook()
    sheet = workbook.active
    sheet.title = "Sheet1"
    for row in ROWS:
        sheet.append(row)
    change(sheet)
    workbook.save(name)


def text(name: str, lines: list[str]) -> None:
    """Write a document of these paragraphs."""
    document = Document()
    for line in lines:
        document.add_paragraph(line)
    document.save(name)


def slides(name: str, pages: list[tuple[str, str]]) -> None:
    """Write a presentation of these titles and texts."""
    presentation = Presentation()
    for title, body in pages:
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = body
    presentation.save(name)


def photo(name: str) -> None:
    """Write a picture of two shapes."""
    image = Image.linear_gradient("L").resize((400, 300)).convert("RGB")
    draw = ImageDraw.Draw(image)
    draw.rectangle((30, 40, 130, 200), fill=(200, 60, 40))
    draw.ellipse((240, 120, 340, 220), fill=(60, 120, 180))
    image.save(name)


def put(**cells: Any) -> Callable[[Any], None]:
    """Return a change of a sheet: these cells."""

    def change(sheet: Any) -> None:
        for cell, value in cells.items():
            sheet[cell] = value

    return change


def renamed(sheet: Any) -> None:
    """Rename apples."""
    for cell in sheet["A"]:
        cell.value = "Pear" if cell.value == "Apple" else cell.value


def bold(sheet: Any) -> None:
    """Make the first row bold."""
    for cell in sheet["1"]:
        cell.font = Font(bold=True)


products = {f"D{number}": row[1] * row[2] for number, row in enumerate(ROWS[1:], 2)}
levels = {f"D{number}": "high" if row[1] > 2 else "low" for number, row in enumerate(ROWS[1:], 2)}
monday = [line.replace("Monday", "Friday") for line in LINES]

if __name__ == "__main__":
    at = Path(sys.argv[1]).joinpath
    book(str(at("book.xlsx")))
    book(str(at("total.xlsx")), put(A7="Total", C7=24))
    book(str(at("product.xlsx")), put(D1="Sum", **products))
    book(str(at("level.xlsx")), put(D1="Level", **levels))
    book(str(at("corrected.xlsx")), put(B4=8))
    book(str(at("renamed.xlsx")), renamed)
    book(str(at("bold.xlsx")), bold)
    book(str(at("shorter.xlsx")), lambda sheet: sheet.delete_rows(3))
    book(str(at("average.xlsx")), put(B7=4.2))
    text(str(at("letter.docx")), LINES)
    text(str(at("friday.docx")), monday)
    text(str(at("signed.docx")), [*LINES, "Yours, Ann"])
    text(str(at("untitled.docx")), LINES[1:])
    text(str(at("early.docx")), LINES[:-1])
    slides(str(at("talk.pptx")), SLIDES)
    slides(str(at("titled.pptx")), [("Roadmap", SLIDES[0][1]), SLIDES[1]])
    slides(str(at("one.pptx")), SLIDES[:1])
    slides(str(at("reworded.pptx")), [(SLIDES[0][0], "Last step"), SLIDES[1]])
    photo(str(at("photo.png")))
