"""What goes to the ranks as files comes out as it went in: turns, and the settings of all of it."""

from dataclasses import fields

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from dartsim.config.sections.trainer import ADVANTAGE  # noqa: E402
from dartsim.real.learners.fsdp.files import (  # noqa: E402
    read_turns_from,
    write_turns,
)
from dartsim.real.learners.turn_data import read_turns, with_selection  # noqa: E402
from dartsim.real.vlm.packing import pack, rows_of  # noqa: E402


@pytest.mark.parametrize("selects", [False, True])
def test_turns_come_out_as_they_went_in(make_vlm, batches, tmp_path, selects):
    vlm = make_vlm()
    data = read_turns(batches[0], vlm, ADVANTAGE())
    if selects:
        data = with_selection(data, batches[0], lambda batch: [n % 2 == 0 for n in range(batch.num_turns)])
    write_turns(data, tmp_path / "turns")
    found = read_turns_from(tmp_path / "turns")
    for item in fields(data):
        one, other = getattr(data, item.name), getattr(found, item.name)
        if isinstance(one, torch.Tensor):
            assert one.dtype == other.dtype
            assert torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))
        elif item.name != "examples":
            assert one == other
    rows, back = rows_of(data.examples), rows_of(found.examples)
    assert [row.members for row in rows] == [row.members for row in back]
    one, other = pack(vlm, rows, data.examples), pack(vlm, back, found.examples)
    for mine, theirs in zip((*one, *one.inputs), (*other, *other.inputs), strict=True):
        if isinstance(mine, torch.Tensor):
            assert torch.equal(mine, theirs)
    seen = {id(p) for example in found.examples for p in example.prompt.pictures}
    assert len(seen) == len({p.key for example in data.examples for p in example.prompt.pictures})
    suffixes = {file.suffix for file in (tmp_path / "turns").iterdir()}
    assert suffixes == {".json", ".safetensors", ".patches"}
