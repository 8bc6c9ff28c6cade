"""What the engines of a pool must contain: complete folders of weights, and checksums that belong to a version.

folder --headers, sizes--> complete? --engine loads it--> its checksums --folder, other engines--> confirmed?
"""

from __future__ import annotations

import hashlib
import json
import logging
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


FileState = tuple[Path, int, int, int]
"""A file, its inode, its size, and the time of its last write: another version of it differs."""


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """A folder of weights, or a single file; ``digests`` are those of small tensors, ``zeros`` holds nothing but 0."""

    path: Path
    shapes: Shapes
    digests: Mapping[str, str]
    zeros: frozenset[str] = frozenset()


class EngineParameters(NamedTuple):
    """The parameters of an engine before a load, and the digests of the tensors that they were made of."""

    checksums: Mapping[str, str]
    sources: Mapping[str, str]

    @classmethod
    def zeroed(cls, facts: FolderFacts, checksums: Mapping[str, str]) -> EngineParameters:
        """Return what an engine holds whose parameters were set to zero before a folder is loaded."""
        return cls(checksums, {name: facts.digests[name] if name in facts.zeros else "" for name in facts.shapes})


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
    states: list[FileState] = []
    for file in files:
        try:
            stat = file.stat()
        except OSError as error:
            raise _torn(file, error) from error
        states.append((file, stat.st_ino, stat.st_size, stat.st_mtime_ns))
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
    embeddings), others are fused from several or repacked. So they are confirmed in four ways: those that were a tensor
    byte by byte after the first load are so after every load; one that did not change in a load is made of tensors that
    did not change; the checksums change if the folder's did; and engines with equal weights have equal checksums. An
    attached engine must hold its first weights tensor by tensor, where it has them under the checkpoint's names.

    Limits: vLLM's CPU build repacks the matrices of linear layers and reports the checksum of an empty tensor for
    them. There, norms, biases, embeddings and the output matrix are compared.
    """

    def __init__(self) -> None:
        self._shapes: dict[bool, Shapes] = {}
        """Shapes in the model's folders (key false) and in its adapters' (key true)."""
        self._verbatim: frozenset[str] | None = None
        """Parameters that are tensors of the folder, byte by byte."""
        self._known: dict[Version, tuple[Mapping[str, str], Mapping[str, str]]] = {}
        """Digests of the folder and checksums of the engine, of the newest versions."""

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
        sources = _sources(checksums, facts)
        same = frozenset(
            parameter
            for parameter, names in sources.items()
            if len(names) == 1 and facts.digests.get(names[0]) == checksums[parameter]
        )
        verbatim = self._verbatim
        if verbatim is None:
            if not same:
                problem = f"no tensor of {str(facts.path)!r} is in the engine; is vllm.dtype the type of these weights?"
                if foreign:
                    raise WeightsUnconfirmed(f"version {version}: {problem}")
                logger.warning("%s Only changes are compared.", problem)
            verbatim = same | _whole(sources, checksums, facts) if foreign else same
        if missing := sorted(verbatim - same):
            raise WeightsUnconfirmed(
                f"version {version}: {len(missing)} of {len(verbatim)} tensors of {str(facts.path)!r} are not in "
                f"the engine, first {missing[0]}"
            )
        if before is not None:
            stale = [
                parameter
                for parameter, names in sources.items()
                if parameter not in same
                and checksums[parameter] == before.checksums.get(parameter) != _BLANK
                and any(facts.digests.get(name) != before.sources.get(name) for name in names)
            ]
            if stale:
                raise WeightsUnconfirmed(
                    f"version {version}: {len(stale)} of {len(checksums)} parameters are as before the load, although "
                    f"{str(facts.path)!r} has others, first {min(stale)}"
                )
        self._compare(version, facts, checksums)
        self._verbatim = verbatim
        self._known[version] = facts.digests, checksums
        while len(self._known) > _KEPT_VERSIONS:
            del self._known[min(self._known)]

    def _compare(self, version: Version, facts: FolderFacts, checksums: Mapping[str, str]) -> None:
        """Compare with the same version in another engine, or with the newest one known."""
        if not self._known:
            return
        other = version if version in self._known else max(self._known)
        digests, known = self._known[other]
        same_folder = digests == facts.digests
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


def _plain(name: str) -> str:
    """Return the name of a tensor or parameter without the parts in which checkpoints, transformers and vLLM differ.

    ``base_layer`` is a layer of an engine that can have adapters.
    """
    other = ("model", "language_model", "base_layer")
    return ".".join(part for part in name.rpartition(":")[2].split(".") if part not in other)


def _sources(checksums: Mapping[str, str], facts: FolderFacts) -> dict[str, list[str]]:
    """Return the tensors that each parameter is made of; none if that is unknown."""
    tensors = {_plain(name): name for name in facts.shapes}
    sources = {}
    for parameter in checksums:
        path, _, kind = _plain(parameter).rpartition(".")
        parent, dot, module = path.rpartition(".")
        names = [f"{parent}{dot}{part}.{kind}" for part in _FUSED.get(module, (module,))]
        sources[parameter] = [tensors[name] for name in names if name in tensors]
    return sources


def _whole(sources: Mapping[str, list[str]], checksums: Mapping[str, str], facts: FolderFacts) -> frozenset[str]:
    """Return the parameters that should be tensors of the folder, byte by byte."""
    # Parts of tensors and quantized ones differ from the folder's; norms are always whole.
    parts = any(":tp1:" in name or name.endswith("_scale") for name in checksums)
    return frozenset(
        parameter
        for parameter, names in sources.items()
        if len(names) == 1
        and names[0] in facts.digests
        and checksums[parameter] != _BLANK
        and ("norm" in parameter or not parts)
        # vLLM may add rows to these.
        and not ("embed_tokens" in parameter or "lm_head" in parameter)
    )
