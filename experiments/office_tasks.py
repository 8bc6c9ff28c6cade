"""Tasks of OSWorld's form on documents that we make, with a right and a wrong answer each, as turns through the screen.

The metrics are those that OSWorld's own tasks on documents use; only the documents differ, because OSWorld's have to be
downloaded.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dartsim.core.errors import ConfigError
from dartsim.real.scoring.evaluator_venv import python_of
from experiments.osworld_solutions import Turns

LIST = "office"
DESKTOP = "/home/user/Desktop"
SECONDS = 120.0
DATA = {"rules": [{"type": "sheet_data", "sheet_idx0": "RI0", "sheet_idx1": "EI0"}]}
STYLE = {"rules": [{"type": "style", "sheet_idx0": "RI0", "sheet_idx1": "EI0", "props": ["font_bold"]}]}
LOOKS = ("alignment", "background_color", "bullets", "color_rgb", "font_name", "font_size", "indent", "shape")
TEXT_ONLY = {f"examine_{name}": False for name in LOOKS}
"""LibreOffice writes these in another way than the package that makes our presentations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfficeTask:
    """A task: the document that is opened, the metric, and what the result is compared with.

    ``result`` is the file to score, by default the document itself.
    """

    words: str
    start: str
    func: str
    gold: str | None = None
    rules: Mapping[str, Any] | None = None
    options: Mapping[str, Any] | None = None
    result: str = ""
    right: Turns
    wrong: Turns


def _cell(cell: str, text: str, *, end: str = "enter") -> Turns:
    """Go to a cell or a range by Calc's name box, and type there."""
    go = ("pyautogui.hotkey('ctrl', 'shift', 't')", "WAIT", f"pyautogui.write('{cell}'); pyautogui.press('enter')")
    finish = "pyautogui.hotkey('alt', 'enter')" if end == "all" else "pyautogui.press('enter')"
    return (*go, "WAIT", *((f"pyautogui.write({text!r}); {finish}",) if text else ()))


SAVE = ("pyautogui.hotkey('ctrl', 's')", "WAIT", "pyautogui.press('enter')", "WAIT", "WAIT", "DONE")
"""Save, and keep Microsoft's format."""


def _key(*keys: str) -> Turns:
    return (f"pyautogui.hotkey({', '.join(map(repr, keys))})", "WAIT")


def _replace(old: str, new: str) -> Turns:
    """Replace a word everywhere by the dialog of LibreOffice."""
    return (
        *_key("ctrl", "h"),
        "WAIT",
        f"pyautogui.write('{old}')",
        *_key("alt", "p"),
        f"pyautogui.write('{new}')",
        *_key("alt", "l"),
        "WAIT",
        "pyautogui.press('enter')",
        "WAIT",
        *("pyautogui.press('esc')", "WAIT", "pyautogui.press('esc')", "WAIT"),
    )


def _retype(text: str) -> Turns:
    """Replace the text of the chosen shape of a slide."""
    return (*_key("f2"), *_key("ctrl", "a"), f"pyautogui.write('{text}')", "pyautogui.press('esc')")


def _gimp(name: str, *turns: str) -> Turns:
    """Run one of GIMP's actions by its name, and confirm its dialog."""
    return (*_key("/"), f"pyautogui.write('{name}')", "WAIT", "WAIT", "pyautogui.press('enter')", "WAIT", *turns)


def _export(name: str) -> Turns:
    path = f"pyautogui.hotkey('ctrl', 'a'); pyautogui.write('{DESKTOP}/{name}'); pyautogui.press('enter')"
    return (
        *_key("ctrl", "shift", "e"),
        "WAIT",
        path,
        "WAIT",
        "WAIT",
        "pyautogui.press('enter')",
        "WAIT",
        "WAIT",
        "DONE",
    )


TASKS: Mapping[str, OfficeTask] = {
    "calc-total": OfficeTask(
        words="Write Total into A7 and the sum of the numbers into C7, and save.",
        start="book.xlsx",
        func="compare_table",
        gold="total.xlsx",
        options=DATA,
        right=(*_cell("A7", "Total"), *_cell("C7", "=SUM(C2:C6)"), *SAVE),
        wrong=(*_cell("A7", "Total"), *_cell("C7", "=SUM(C2:C5)"), *SAVE),
    ),
    "calc-product": OfficeTask(
        words="Add a column Sum with the product of price and number, and save.",
        start="book.xlsx",
        func="compare_table",
        gold="product.xlsx",
        options=DATA,
        right=(*_cell("D1", "Sum"), *_cell("D2:D6", "=B2*C2", end="all"), *SAVE),
        wrong=(*_cell("D1", "Sum"), *_cell("D2:D6", "=B2+C2", end="all"), *SAVE),
    ),
    "calc-level": OfficeTask(
        words="Add a column Level that says high for prices above 2, otherwise low, and save.",
        start="book.xlsx",
        func="compare_table",
        gold="level.xlsx",
        options=DATA,
        right=(*_cell("D1", "Level"), *_cell("D2:D6", '=IF(B2>2;"high";"low")', end="all"), *SAVE),
        wrong=(*_cell("D1", "Level"), *_cell("D2:D6", '=IF(B2>3;"high";"low")', end="all"), *SAVE),
    ),
    "calc-correct": OfficeTask(
        words="The price of cheese is 8; correct it, and save.",
        start="book.xlsx",
        func="compare_table",
        gold="corrected.xlsx",
        options=DATA,
        right=(*_cell("B4", "8"), *SAVE),
        wrong=(*_cell("B5", "8"), *SAVE),
    ),
    "calc-replace": OfficeTask(
        words="Replace Apple by Pear everywhere, and save.",
        start="book.xlsx",
        func="compare_table",
        gold="renamed.xlsx",
        options=DATA,
        right=(*_replace("Apple", "Pear"), *SAVE),
        wrong=(*_cell("A2", "Pear"), *SAVE),
    ),
    "calc-bold": OfficeTask(
        words="Make the first row bold, and save.",
        start="book.xlsx",
        func="compare_table",
        gold="bold.xlsx",
        options=STYLE,
        right=(*_cell("A1:C1", ""), *_key("ctrl", "b"), *SAVE),
        wrong=(*_cell("A1:B1", ""), *_key("ctrl", "b"), *SAVE),
    ),
    "calc-delete": OfficeTask(
        words="Delete the row of bread, and save.",
        start="book.xlsx",
        func="compare_table",
        gold="shorter.xlsx",
        options=DATA,
        right=(*_cell("3:3", ""), *_key("ctrl", "-"), *SAVE),
        wrong=(*_cell("4:4", ""), *_key("ctrl", "-"), *SAVE),
    ),
    "calc-average": OfficeTask(
        words="Write the average price into B7, and save.",
        start="book.xlsx",
        func="compare_table",
        gold="average.xlsx",
        options=DATA,
        right=(*_cell("B7", "=AVERAGE(B2:B6)"), *SAVE),
        wrong=(*_cell("B7", "=MEDIAN(B2:B6)"), *SAVE),
    ),
    "writer-replace": OfficeTask(
        words="Replace Monday by Friday everywhere, and save.",
        start="letter.docx",
        func="compare_docx_files",
        gold="friday.docx",
        right=(*_replace("Monday", "Friday"), *SAVE),
        wrong=(*_replace("Monday", "Sunday"), *SAVE),
    ),
    "writer-sign": OfficeTask(
        words="Add the paragraph Yours, Ann at the end, and save.",
        start="letter.docx",
        func="compare_docx_files",
        gold="signed.docx",
        right=(*_key("ctrl", "end"), "pyautogui.write('\\nYours, Ann')", *SAVE),
        wrong=(*_key("ctrl", "end"), "pyautogui.write('\\nYours, Bob')", *SAVE),
    ),
    "writer-untitled": OfficeTask(
        words="Delete the title, and save.",
        start="letter.docx",
        func="compare_docx_files",
        gold="untitled.docx",
        right=("pyautogui.hotkey('ctrl', 'home'); pyautogui.hotkey('shift', 'down'); pyautogui.press('delete')", *SAVE),
        wrong=(
            "pyautogui.hotkey('ctrl', 'home'); pyautogui.hotkey('shift', 'right'); pyautogui.press('delete')",
            *SAVE,
        ),
    ),
    "writer-center": OfficeTask(
        words="Center the title, and save.",
        start="letter.docx",
        func="is_first_line_centered",
        right=(*_key("ctrl", "home"), *_key("ctrl", "e"), *SAVE),
        wrong=(*_key("ctrl", "end"), *_key("ctrl", "e"), *SAVE),
    ),
    "writer-shorter": OfficeTask(
        words="Delete the last paragraph, and save.",
        start="letter.docx",
        func="compare_docx_files",
        gold="early.docx",
        right=(*_key("ctrl", "end"), *_key("shift", "home"), "pyautogui.press(['delete', 'backspace'])", *SAVE),
        wrong=(*_key("ctrl", "end"), "pyautogui.press('backspace')", *SAVE),
    ),
    "writer-break": OfficeTask(
        words="Insert a page break at the end, and save.",
        start="letter.docx",
        func="contains_page_break",
        rules={"page_break_count": 1},
        right=(*_key("ctrl", "end"), *_key("ctrl", "enter"), "pyautogui.write('Appendix')", *SAVE),
        wrong=(*_key("ctrl", "end"), "pyautogui.write('\\nAppendix')", *SAVE),
    ),
    "impress-title": OfficeTask(
        words="Change the title of the first slide to Roadmap, and save.",
        start="talk.pptx",
        func="compare_pptx_files",
        gold="titled.pptx",
        options=TEXT_ONLY,
        right=(
            *_key("tab"),
            *_key("f2"),
            *_key("ctrl", "a"),
            "pyautogui.write('Roadmap')",
            "pyautogui.press('esc')",
            *SAVE,
        ),
        wrong=(
            *_key("tab"),
            *_key("f2"),
            *_key("ctrl", "a"),
            "pyautogui.write('Road')",
            "pyautogui.press('esc')",
            *SAVE,
        ),
    ),
    "impress-body": OfficeTask(
        words="Change First step on the first slide to Last step, and save.",
        start="talk.pptx",
        func="compare_pptx_files",
        gold="reworded.pptx",
        options=TEXT_ONLY,
        right=(*_key("tab"), *_key("tab"), *_retype("Last step"), *SAVE),
        wrong=(*_key("tab"), *_retype("Last step"), *SAVE),
    ),
    "impress-delete": OfficeTask(
        words="Delete the second slide, and save.",
        start="talk.pptx",
        func="compare_pptx_files",
        gold="one.pptx",
        options=TEXT_ONLY,
        right=("pyautogui.click(90, 380)", *_key("delete"), *SAVE),
        wrong=("pyautogui.click(90, 240)", *_key("delete"), *SAVE),
    ),
    "gimp-mirror": OfficeTask(
        words="Mirror the photo horizontally, and export it as mirror.png on the desktop.",
        start="photo.png",
        func="check_image_mirror",
        gold="photo.png",
        result="mirror.png",
        right=(*_gimp("flip image horizontally"), *_export("mirror.png")),
        wrong=(*_gimp("flip image vertically"), *_export("mirror.png")),
    ),
    "gimp-export": OfficeTask(
        words="Export the photo as export.jpg on the desktop.",
        start="photo.png",
        func="check_file_exists_and_structure_sim",
        gold="photo.png",
        result="export.jpg",
        right=_export("export.jpg"),
        wrong=_export("exported.jpg"),
    ),
    "gimp-palette": OfficeTask(
        words="Make the image palette-based, and export it as palette.png on the desktop.",
        start="photo.png",
        func="check_palette_and_structure_sim",
        gold="photo.png",
        result="palette.png",
        right=(*_gimp("indexed", "pyautogui.press('enter')", "WAIT"), *_export("palette.png")),
        wrong=_export("palette.png"),
    ),
    "gimp-size": OfficeTask(
        words="Scale the image to a width of 200 pixels, and export it as small.png on the desktop.",
        start="photo.png",
        func="check_image_size",
        rules={"width": 200},
        result="small.png",
        right=(
            *_gimp("scale image", "pyautogui.hotkey('ctrl', 'a'); pyautogui.write('200')", *_key("alt", "s")),
            *_export("small.png"),
        ),
        wrong=_export("small.png"),
    ),
}
RIGHT: Mapping[str, Turns] = {name: task.right for name, task in TASKS.items()}
WRONG: Mapping[str, Turns] = {name: task.wrong for name, task in TASKS.items()}


def make_office_tasks(folder: Path, home: Path) -> None:
    """Write the tasks and their documents into a folder, with the packages of the evaluator in ``home``.

    Raises:
        ConfigError: If the documents cannot be made.
    """
    command = [str(python_of(home)), str(Path(__file__).with_name("office_files.py")), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        raise ConfigError(f"the documents of the office tasks could not be made: {done.stderr.strip()[-300:]}")
    examples = folder / "examples" / LIST
    examples.mkdir(parents=True, exist_ok=True)
    for name, task in TASKS.items():
        (examples / f"{name}.json").write_text(json.dumps(_task_file(name, task, folder)))
    (folder / f"{LIST}.json").write_text(json.dumps({LIST: list(TASKS)}))


def _task_file(name: str, task: OfficeTask, folder: Path) -> dict[str, Any]:
    path = f"{DESKTOP}/{task.start}"
    image = task.start.endswith(".png")
    opens = (
        {"type": "launch", "parameters": {"command": ["gimp", path]}}
        if image
        else {"type": "open", "parameters": {"path": path}}
    )
    result = task.result or task.start
    evaluator: dict[str, Any] = {
        "func": task.func,
        "result": {"type": "vm_file", "path": f"{DESKTOP}/{result}", "dest": result},
        "options": task.options or {},
    }
    if task.gold is not None:
        evaluator["expected"] = {
            "type": "cloud_file",
            "path": (folder / task.gold).as_uri(),
            "dest": f"gold-{task.gold}",
        }
    elif task.rules is not None:
        evaluator["expected"] = {"type": "rule", "rules": task.rules}
    upload = {"type": "upload_file", "parameters": {"files": [{"local_path": task.start, "path": path}]}}
    return {
        "id": name,
        "instruction": task.words,
        "related_apps": ["gimp" if image else "libreoffice"],
        "config": [upload, opens],
        "evaluator": evaluator,
    }
