"""Write a file of each kind that OSWorld's metrics read, solved or untouched, by the evaluator's own Python.

``good_files.py FOLDER (solved | untouched)``
"""

import io
import json
import sqlite3
import sys
import tarfile
import wave
import zipfile
from pathlib import Path

import cv2
import docx
import fitz
import numpy
import openpyxl
import pptx
from docx.enum.text import WD_BREAK
from odf.opendocument import OpenDocumentText
from odf.text import P
from PIL import Image

folder = Path(sys.argv[1])
SOLVED = sys.argv[2] == "solved"
WORDS = "one two three four five six seven eight nine ten" if SOLVED else "nothing was done here"

document = docx.Document()
for number in range(5):
    paragraph = document.add_paragraph()
    run = paragraph.add_run(f"{WORDS}\t{number}")
    run.font.name = "Times New Roman" if SOLVED else "Arial"
    run.font.size = docx.shared.Pt(14 if SOLVED else 9)
    run.italic = SOLVED
document.paragraphs[0].alignment = int(SOLVED)
if SOLVED:
    document.paragraphs[1].add_run().add_break(WD_BREAK.PAGE)
document.add_table(2, 2).cell(0, 0).text = WORDS
document.sections[0].footer.paragraphs[0].text = "1" if SOLVED else ""
document.save(folder / "file.docx")

text = OpenDocumentText()
text.text.addElement(P(text=WORDS))
text.save(folder / "file.odt")

slides = pptx.Presentation()
slide = slides.slides.add_slide(slides.slide_layouts[5])
slide.shapes.title.text = WORDS
slide.background.fill.solid()
slide.background.fill.fore_color.rgb = pptx.dml.color.RGBColor(0, 0, 255 if SOLVED else 1)
slides.save(folder / "file.pptx")

book = openpyxl.Workbook()
for row in range(5):
    book.active.append([row, WORDS, row / 2])
book.save(folder / "file.xlsx")

picture = numpy.random.default_rng(int(SOLVED)).integers(0, 255, (64, 64, 3), dtype=numpy.uint8)
if SOLVED:
    picture[8:24, 4:20] = (0, 255, 0)
Image.fromarray(picture).save(folder / "file.png")

page = fitz.open()
page.new_page().insert_text((72, 72), WORDS)
page.save(folder / "file.pdf")

video = cv2.VideoWriter(str(folder / "file.mp4"), cv2.VideoWriter_fourcc(*"mp4v"), 5, (64, 64))
for _ in range(5):
    video.write(picture)
video.release()

with wave.open(str(folder / "file.wav"), "wb") as sound:
    sound.setnchannels(1)
    sound.setsampwidth(2)
    sound.setframerate(8000)
    sound.writeframes(picture.tobytes())

database = sqlite3.connect(folder / "file.sqlite")
database.executescript(f"CREATE TABLE answers (value); INSERT INTO answers VALUES ({int(SOLVED)});")
database.close()

with zipfile.ZipFile(folder / "file.zip", "w") as archive:
    archive.writestr("a.txt", WORDS)
with tarfile.open(folder / "file.tar", "w") as archive:
    info = tarfile.TarInfo("a.txt")
    info.size = len(WORDS)
    archive.addfile(info, io.BytesIO(WORDS.encode()))

(folder / "file.txt").write_text(WORDS + "\n")
(folder / "file.csv").write_text(f"number,words\n1,{WORDS}\n")
(folder / "file.json").write_text(json.dumps({"key": WORDS}))
(folder / "file.xml").write_text(f"<root><item name='a'>{WORDS}</item></root>")
