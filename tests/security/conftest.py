"""Hostile files by kind of input and class of attack, made with the standard library alone.

``KINDS`` is the table: the classes of attack that apply to each kind. The fixture ``hostile_files`` makes them.
"""

from __future__ import annotations

import io
import pickle
import sqlite3
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

MARK = "/tmp/dartsim-red-team-was-here"
"""What an attack writes if it gets out."""
ANYWHERE = ("empty", "pickle", "truncated", "zeros")
"""Attacks on whatever reads a file."""

KINDS: dict[str, tuple[str, ...]] = {
    "text": (*ANYWHERE, "long line", "not text", "pattern food"),
    "yaml": (*ANYWHERE, "alias bomb", "object tag", "deep"),
    "json": (*ANYWHERE, "long line", "not text", "deep", "huge number"),
    "csv": (*ANYWHERE, "huge cell", "not text"),
    "xml": (*ANYWHERE, "deep elements", "entity bomb", "external entity"),
    "docx": (*ANYWHERE, "zip bomb", "names that lead out", "link", "entity bomb", "external entity", "macro"),
    "odt": (*ANYWHERE, "zip bomb", "names that lead out", "link", "entity bomb", "external entity", "macro"),
    "pptx": (*ANYWHERE, "zip bomb", "names that lead out", "link", "entity bomb", "external entity", "macro"),
    "xlsx": (
        *ANYWHERE,
        *(
            "zip bomb",
            "names that lead out",
            "link",
            "entity bomb",
            "external entity",
            "macro",
            "huge cell",
            "far cell",
        ),
    ),
    "png": (*ANYWHERE, "pixel bomb"),
    "pdf": (*ANYWHERE, "stream bomb", "page loop"),
    "wav": (*ANYWHERE, "false length"),
    "mp4": (*ANYWHERE, "false length"),
    "sqlite": (*ANYWHERE, "endless view"),
    "zip": (*ANYWHERE, "zip bomb", "names that lead out", "link"),
    "tar": (*ANYWHERE, "tar names that lead out", "tar link", "tar expected folder", "tar devices"),
}
PARTS = {
    "docx": "word/document.xml",
    "odt": "content.xml",
    "pptx": "ppt/slides/slide1.xml",
    "xlsx": "xl/worksheets/sheet1.xml",
    "zip": "a.txt",
}
"""The part of an archive that a metric reads first."""
BOMB_BYTES = 2**29


@pytest.fixture(scope="session")
def hostile_files() -> Callable[[str, bytes], Iterator[tuple[str, bytes]]]:
    """Yield each attack on a kind of file with its bytes, made from a file that an agent has left untouched."""

    def make(kind: str, untouched: bytes) -> Iterator[tuple[str, bytes]]:
        for attack in KINDS[kind]:
            if kind in PARTS and attack in ZIPPED:
                yield attack, ZIPPED[attack](untouched, PARTS[kind])
            else:
                yield attack, PLAIN[attack](untouched)

    return make


class _Runs:
    """Says, when it is unpickled, that it was: it runs a command and kills the process."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return eval, (
            f"__import__('os').system('touch {MARK}') or __import__('os').kill(__import__('os').getpid(), 9)",
        )


def _entity_bomb(good: bytes = b"") -> bytes:
    levels = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    return f'<?xml version="1.0"?><!DOCTYPE r [<!ENTITY e0 "{"x" * 100}">{levels}]><r>&e11;</r>'.encode()


def _external_entity(good: bytes = b"") -> bytes:
    return b'<?xml version="1.0"?><!DOCTYPE r [<!ENTITY f SYSTEM "file:///proc/self/environ">]><r>&f;</r>'


def _replaced(good: bytes, name: str, data: bytes) -> bytes:
    """Return an archive with another content of one member."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(good)) as before, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as after:
        for member in before.infolist():
            after.writestr(member, data if member.filename == name else before.read(member))
        if name not in before.namelist():
            after.writestr(name, data)
    return buffer.getvalue()


def _zip_bomb(good: bytes, part: str) -> bytes:
    buffer = io.BytesIO()
    fast = zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
    with zipfile.ZipFile(io.BytesIO(good)) as before, fast as after:
        for member in before.infolist():
            if member.filename != part:
                after.writestr(member, before.read(member))
        with after.open(part, "w") as stream:
            for _ in range(BOMB_BYTES // 2**22):
                stream.write(bytes(2**22))
    return buffer.getvalue()


def _added(good: bytes, *members: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    buffer = io.BytesIO(good)
    with zipfile.ZipFile(buffer, "a") as archive:
        for name, data in members:
            archive.writestr(name, data)
    return buffer.getvalue()


def _names(good: bytes, part: str) -> bytes:
    names = ("../escaped", f"/{MARK}", "..\\escaped", "a/../../../../escaped", "new\nline")
    return _added(good, *((name, b"by the agent") for name in names))


def _link(good: bytes, part: str) -> bytes:
    info = zipfile.ZipInfo(f"{part}.rels")
    info.external_attr = 0o120777 << 16
    return _added(good, (info, b"/etc/passwd"), ("media/link", b"../../../etc/passwd"))


def _macro(good: bytes, part: str) -> bytes:
    script = f'Sub Main\n Shell("touch {MARK}")\nEnd Sub'.encode()
    names = ("word/vbaProject.bin", "xl/vbaProject.bin", "ppt/vbaProject.bin", "Basic/Standard/Module1.xml")
    return _added(good, *((name, script) for name in names))


def _sheet(cells: str) -> bytes:
    name = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    return f'<worksheet xmlns="{name}"><sheetData>{cells}</sheetData></worksheet>'.encode()


def _huge_cell(good: bytes, part: str) -> bytes:
    return _replaced(good, part, _sheet(f'<row r="1"><c r="A1" t="inlineStr"><is><t>{"x" * 2**24}</t></is></c></row>'))


def _far_cell(good: bytes, part: str) -> bytes:
    return _replaced(good, part, _sheet('<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'))


def _pixel_bomb(good: bytes) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    side = 60_000
    packer = zlib.compressobj(1)
    row = bytes(1 + side // 8)
    pixels = b"".join(packer.compress(row * 1000) for _ in range(side // 1000)) + packer.flush()
    head = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def _pdf(kids: str, content: bytes, options: str) -> bytes:
    return (
        b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Count 1/Kids["
        + kids.encode()
        + b"]>>endobj\n3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents 4 0 R>>endobj\n4 0 obj<</Length "
        + f"{len(content)}{options}".encode()
        + b">>stream\n"
        + content
        + b"\nendstream endobj\ntrailer<</Root 1 0 R/Size 5>>\n%%EOF\n"
    )


def _stream_bomb(good: bytes) -> bytes:
    packer = zlib.compressobj(1)
    content = b"".join(packer.compress(b"q Q " * 2**18) for _ in range(2**8)) + packer.flush()
    return _pdf("3 0 R", content, "/Filter/FlateDecode")


def _endless_view(good: bytes) -> bytes:
    """Return a database whose tables are views without an end."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "db")
        database = sqlite3.connect(path)
        for name in ("answers", "urls", "cookies"):
            database.execute(
                f"CREATE VIEW {name} AS WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n) "
                "SELECT value, value AS url, value AS title, value AS visit_time FROM n"
            )
        database.commit()
        database.close()
        return path.read_bytes()


def _tar(*members: tuple[str, bytes, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, kind, link in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mode = kind, link, 0o777
            data = b"by the agent" if kind == tarfile.REGTYPE else b""
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


ZIPPED: dict[str, Callable[[bytes, str], bytes]] = {
    "entity bomb": lambda good, part: _replaced(good, part, _entity_bomb()),
    "external entity": lambda good, part: _replaced(good, part, _external_entity()),
    "far cell": _far_cell,
    "huge cell": _huge_cell,
    "link": _link,
    "macro": _macro,
    "names that lead out": _names,
    "zip bomb": _zip_bomb,
}
PLAIN: dict[str, Callable[[bytes], bytes]] = {
    "alias bomb": lambda good: (
        b"a: &a [x]\n"
        + b"".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 10)}]\n".encode() for n in range(10)
        )
    ),
    "object tag": lambda good: f"key: !!python/object/apply:os.system ['touch {MARK}']\n".encode(),
    "pattern food": lambda good: b'user_pref("a", "' + b"a" * 40 + b'!");\n' + b"a" * 40 + b"!\n",
    "deep": lambda good: b"[" * 200_000,
    "deep elements": lambda good: b"<a>" * 200_000,
    "empty": lambda good: b"",
    "endless view": _endless_view,
    "entity bomb": _entity_bomb,
    "external entity": _external_entity,
    "false length": lambda good: good[:4] + b"\xff\xff\xff\x7f" + good[8:40] + b"\xff\xff\xff\x7f" + good[44:],
    "huge cell": lambda good: b'"' + b"x" * 2**24 + b'"\n',
    "huge number": lambda good: b"1" * 2**22,
    "long line": lambda good: b"a" * 2**24,
    "not text": lambda good: b"\xff\xfe\x00\xd8\x80" * 1000,
    "page loop": lambda good: _pdf("2 0 R", b"", ""),
    "pickle": lambda good: pickle.dumps(_Runs()),
    "pixel bomb": _pixel_bomb,
    "stream bomb": _stream_bomb,
    "tar devices": lambda good: _tar(("pipe", tarfile.FIFOTYPE, ""), ("device", tarfile.CHRTYPE, "")),
    "tar expected folder": lambda good: _tar(
        ("a.txt", tarfile.REGTYPE, ""), ("../gold_gold/a.txt", tarfile.REGTYPE, "")
    ),
    "tar link": lambda good: _tar(("a.txt", tarfile.SYMTYPE, "../gold_gold/a.txt")),
    "tar names that lead out": lambda good: _tar(
        ("a.txt", tarfile.REGTYPE, ""), (MARK, tarfile.REGTYPE, ""), ("../../../escaped", tarfile.REGTYPE, "")
    ),
    "truncated": lambda good: good[: len(good) // 2],
    "zeros": lambda good: bytes(2**20),
}
