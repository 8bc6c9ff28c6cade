"""What the engines of a pool must contain: complete folders of weights, and checksums that belong to a version.

folder --headers, sizes--> complete? --engine loads it--> its checksums --folder, other engines--> confirmed?
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from dartsim.core.types import Version
from dartsim.real.engines.errors import WeightsTorn, WeightsUnconfirmed

logger = logging.getLogger(__name__)

ADAPTER_FILE = "adapter_model.safetensors"
"""The file of an adapter's folder, in place of a model's files."""

Shapes = Mapping[str, tuple[str, tuple[int, ...]]]
"""Dtype and shape of each tensor, by name."""

_HASHED_BYTES = 64 * 2**20
"""Tensors up to this size are hashed: norms and biases of every layer at any scale, all of a small model."""
_KEPT_VERSIONS = 8
_BLANK = hashlib.sha256(b"").hexdigest()
"""The checksum of a matrix that the engine has repacked."""


class FileState(NamedTuple):
    """Identifies a version of a file, which a replacement or a write changes; ``changed_ns`` is the last write."""

    file: Path
    inode: int
    size: int
    changed_ns: int


def file_state(file: Path) -> FileState:
    """Return the present state of a file.

    Raises:
        OSError: If there is none.
    """
    stat = file.stat()
    return FileState(file, stat.st_ino, stat.st_size, stat.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """A folder of weights, or a single file; ``digests`` are those of small tensors, ``zeros`` holds nothing but 0."""

    path: Path
    shapes: Shapes
    digests: Mapping[str, str]
    zeros: frozenset[str] = frozenset()


class EngineParameters(NamedTuple):
    """The parameters of an engine before a load.

    ``sources`` are digests of tensors that its parameters were made of; ``reset`` says that all were set to zero.
    """

    checksums: Mapping[str, str]
    sources: Mapping[str, str | None]
    reset: bool = False

    @classmethod
    def zeroed(cls, facts: FolderFacts, checksums: Mapping[str, str]) -> EngineParameters:
        """Return what an engine holds whose parameters were set to zero before a folder is loaded."""
        zeros = {name: facts.digests[name] if name in facts.zeros else "" for name in facts.shapes}
        return cls(checksums, zeros, reset=True)


def is_adapter_folder(path: Path) -> bool:
    """Return whether a folder holds an adapter (``dartsim.real.vlm.lora``) and no model."""
    return (path / ADAPTER_FILE).is_file()


def read_folder(path: Path) -> FolderFacts:
    """Read a folder of safetensors, and check that every file is as long as its header says.

    Raises:
        WeightsTorn: If there is none, or one is truncated.
    """
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files:
        raise WeightsTorn(f"{str(path)!r} holds no safetensors file")
    states = []
    for file in files:
        try:
            states.append(file_state(file))
        except OSError as error:
            raise _torn(file, error) from error
    return _read_files(path, tuple(states))


def _torn(file: Path, error: Exception) -> WeightsTorn:
    return WeightsTorn(f"{str(file)!r} is not a whole safetensors file: {error}")


@lru_cache(maxsize=8)  # all engines of a pool read the same folder, and gigabytes are hashed
def _read_files(path: Path, files: tuple[FileState, ...]) -> FolderFacts:
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {}
    digests: dict[str, str] = {}
    zeros: set[str] = set()
    for file, *_ in files:
        try:
            _read_file(file, shapes, digests, zeros)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _torn(file, error) from error
    return FolderFacts(path, shapes, digests, frozenset(zeros))


def _read_file(
    file: Path, shapes: dict[str, tuple[str, tuple[int, ...]]], digests: dict[str, str], zeros: set[str]
) -> None:
    """Read one file. Its first 8 bytes are the header's length; source: the safetensors format."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        size = file.stat().st_size
        if not 0 < length <= size - 8:
            raise ValueError(f"its header of {length} bytes does not fit into {size} bytes")
        header: dict[str, Any] = json.loads(stream.read(length))
        header.pop("__metadata__", None)
        end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
        if size != 8 + length + end:
            raise ValueError(f"it has {size} bytes, its header says {8 + length + end}")
        for name, entry in header.items():
            begin, stop = entry["data_offsets"]
            shapes[name] = (entry["dtype"], tuple(entry["shape"]))
            if stop - begin <= _HASHED_BYTES:
                stream.seek(8 + length + begin)
                content = stream.read(stop - begin)
                digests[name] = hashlib.sha256(content).hexdigest()
                if content.count(0) == len(content):
                    zeros.add(name)


class WeightsLedger:
    """What the engines of one pool should hold, by version; they share one ledger.

    An engine's checksums are over its own parameters: some are the checkpoint's tensors byte by byte (norms, biases,
    embeddings), others are fused from several or repacked. So they are confirmed in four ways: a parameter that did
    not change in a load must be a tensor of the folder, or be made of tensors that did not change either; the
    checkpoint's tensors that the first engine held verbatim must be there after every load; the checksums change if
    the folder's did; and engines with equal weights have equal checksums. An attached engine must hold its first
    weights tensor by tensor, where it has them under the checkpoint's names.

    Limits: vLLM's CPU build repacks the matrices of linear layers and reports the checksum of an empty tensor for
    them. There, norms, biases, embeddings and the output matrix are compared.
    """

    def __init__(self) -> None:
        self._shapes: dict[bool, Shapes] = {}
        """Shapes in the model's folders (key false) and in its adapters' (key true)."""
        self._verbatim: frozenset[str] | None = None
        self._digests: dict[Version, Mapping[str, str]] = {}
        self._checksums: dict[Version, Mapping[str, str]] = {}

    def inspect(self, path: Path) -> FolderFacts:
        """Read a folder, which must have the names and shapes of the first one inspected; call it in a thread.

        Raises:
            WeightsTorn: If it is incomplete or of another model.
        """
        facts = read_folder(path)
        found = facts.shapes
        wanted = self._shapes.setdefault(is_adapter_folder(path), found)
        if wanted != found:
            odd = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
            raise WeightsTorn(
                f"{str(path)!r} differs in {len(odd)} of {len(wanted)} tensors from the model in service, first "
                f"{odd[0]}: found {found.get(odd[0])}, wanted {wanted.get(odd[0])}"
            )
        return facts

    def confirm(
        self,
        version: Version,
        facts: FolderFacts,
        checksums: Mapping[str, str],
        *,
        before: EngineParameters | None = None,
        foreign: bool = False,
    ) -> None:
        """Check the weights of an engine after it loaded a version, and remember them.

        Args:
            version: The version.
            facts: The folder of its weights.
            checksums: The engine's.
            before: Its parameters before the load; None if it was started with the weights.
            foreign: The engine is attached, so its weights are arbitrary.

        Raises:
            WeightsUnconfirmed: If it has other weights.
        """
        in_engine = set(checksums.values())
        found = frozenset(name for name, digest in facts.digests.items() if digest in in_engine)
        if before is not None:
            _refuse_unloaded(version, facts, checksums, before)
        if self._verbatim is None:
            if foreign:
                _refuse_others(version, facts, checksums, found)
            elif not found:
                logger.warning(
                    "no tensor of %s is in the engine as it is, so that only changes are compared: is vllm.dtype the "
                    "type of these weights?",
                    facts.path,
                )
            # A tensor that equals another one, such as a bias of zeros, may only seem to be there.
            counts = Counter(facts.digests.values())
            named = {(_plain(name), digest) for name, digest in checksums.items()}
            self._verbatim = frozenset(
                name
                for name in found
                if counts[facts.digests[name]] == 1 or (_plain(name), facts.digests[name]) in named
            )
        if missing := sorted(self._verbatim - found):
            raise WeightsUnconfirmed(
                f"version {version}: {len(missing)} of {len(self._verbatim)} tensors of {str(facts.path)!r} are not in "
                f"the engine, first {missing[0]}"
            )
        self._compare(version, facts, checksums)
        self._digests[version], self._checksums[version] = facts.digests, checksums
        while len(self._checksums) > _KEPT_VERSIONS:
            oldest = min(self._checksums)
            del self._checksums[oldest], self._digests[oldest]

    def _compare(self, version: Version, facts: FolderFacts, checksums: Mapping[str, str]) -> None:
        """Compare with the same version in another engine, or with the newest one known."""
        if not self._checksums:
            return
        other = version if version in self._checksums else max(self._checksums)
        same_folder = self._digests[other] == facts.digests
        known = self._checksums[other]
        differing = sorted(name for name in checksums.keys() & known.keys() if checksums[name] != known[name])
        if same_folder and differing:
            raise WeightsUnconfirmed(
                f"version {version}: {len(differing)} parameters differ from an engine with version {other} and the "
                f"very same weights, first {differing[0]}"
            )
        # Repacked matrices never show a change, so with them an unchanged checksum proves nothing.
        if not same_folder and not differing and _BLANK not in checksums.values():
            raise WeightsUnconfirmed(
                f"version {version}: the engine's checksums are those of version {other}, whose weights were others; "
                "nothing was loaded"
            )


_FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
"""Parameters of vLLM's classes, and the checkpoint's tensors that they are made of."""
_PADDED = 64
"""vLLM adds rows to embeddings and outputs up to a multiple of that."""


def _plain(name: str) -> str:
    """Return the name of a tensor or parameter without the parts in which checkpoints, transformers and vLLM differ.

    ``base_layer`` is a layer of an engine that can have adapters.
    """
    other = ("model", "language_model", "base_layer")
    return ".".join(part for part in name.rpartition(":")[2].split(".") if part not in other)


def _sources(parameter: str, tensors: Mapping[str, str]) -> list[str]:
    """Return the tensors that a parameter is made of, by plain names; none if that is unknown."""
    path = _plain(parameter).split(".")
    module = path[-2] if len(path) > 1 else ""
    names = [".".join([*path[:-2], part, path[-1]]) for part in _FUSED.get(module, (module,))] if module else path
    return [tensors[name] for name in names if name in tensors]


def _refuse_unloaded(
    version: Version, facts: FolderFacts, checksums: Mapping[str, str], before: EngineParameters
) -> None:
    """Check that a load reached every parameter.

    Raises:
        WeightsUnconfirmed: If one did not change although what it is made of did.
    """
    in_folder = {_BLANK, *facts.digests.values()}
    tensors = {_plain(name): name for name in facts.shapes}
    stale = []
    for parameter, digest in checksums.items():
        if digest in in_folder or digest != before.checksums.get(parameter):
            continue
        sources = _sources(parameter, tensors)
        same = all(facts.digests.get(name) == before.sources.get(name) for name in sources)
        if not same or (before.reset and not sources):
            stale.append(parameter)
    if stale:
        raise WeightsUnconfirmed(
            f"version {version}: {len(stale)} of {len(checksums)} parameters of {str(facts.path)!r} are not in the "
            f"engine, which has them as before the load, first {min(stale)}"
        )


def _refuse_others(version: Version, facts: FolderFacts, checksums: Mapping[str, str], found: frozenset[str]) -> None:
    """Check the first weights of an attached engine.

    Raises:
        WeightsUnconfirmed: If a tensor is missing that it has a parameter for, or no tensor is there.
    """
    tensors = {_plain(name): name for name in facts.shapes}
    # Parts of tensors and quantized ones differ from the folder's; norms are always whole.
    whole = not any(":tp1:" in name or name.endswith("_scale") for name in checksums)
    there = (tensors.get(_plain(name)) for name, digest in checksums.items() if digest != _BLANK)
    wanted = {name for name in there if name in facts.digests and (whole or "norm" in str(name))}
    wanted -= {name for name in wanted if _may_be_padded(str(name), facts.shapes[str(name)][1])}
    missing = sorted(str(name) for name in wanted - found)
    if missing or not found:
        first = f"first {missing[0]}" if missing else "nor can any other be found there"
        raise WeightsUnconfirmed(
            f"version {version}: {len(missing)} of {len(wanted)} tensors of {str(facts.path)!r} are not in the engine, "
            f"{first}; does it read this folder, and is vllm.dtype the type of these weights?"
        )


def _may_be_padded(name: str, shape: tuple[int, ...]) -> bool:
    return ("embed_tokens" in name or "lm_head" in name) and shape[0] % _PADDED != 0
