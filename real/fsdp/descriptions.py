"""Reading DCP's description of a checkpoint without trusting it: it is a pickle, and a pickle may run anything.

Only the classes that torch's own writer puts there can be made; whatever else is named is refused before it is
imported. The tensors themselves are read by torch with ``weights_only``.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata

ALLOWED = {
    "torch.distributed.checkpoint.metadata": {
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo", "_StoragePrefix"},
    "torch.serialization": {"_get_layout"},
    "torch": {"Size", "device", "float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"},
    "pathlib": {"Path", "PosixPath", "PurePosixPath"},
    "collections": {"OrderedDict"},
}
MAX_BYTES = 64 * 2**20


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Return a class that a description may hold."""
        if name not in ALLOWED.get(module, ()):
            raise pickle.UnpicklingError(f"found {module}.{name}, which no description of a checkpoint holds")
        return super().find_class(module, name)


class Reader(FileSystemReader):
    """Reads checkpoints of tensors; what is not a tensor would be a pickle again and is refused."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return the description.

        Raises:
            ValueError: If it holds what no checkpoint of ours holds.
        """
        path = Path(str(self._get_metadata_path(kwargs.get("rank"))))
        data = path.read_bytes()
        if len(data) > MAX_BYTES:
            raise ValueError(f"{path} has {len(data):,} bytes, wanted at most {MAX_BYTES:,}")
        try:
            found = _Unpickler(io.BytesIO(data)).load()
        except (
            pickle.UnpicklingError,
            EOFError,
            AttributeError,
            IndexError,
            KeyError,
            TypeError,
            ImportError,
        ) as error:
            raise ValueError(f"{path} is no description of a checkpoint: {error}") from None
        if not isinstance(found, Metadata):
            raise ValueError(f"{path} holds a {type(found).__name__}, wanted the description of a checkpoint")
        odd = [name for name, kind in found.state_dict_metadata.items() if not isinstance(kind, TensorStorageMetadata)]
        if odd:
            raise ValueError(f"{path} holds {odd[0]!r}, which is no tensor")
        self._inside(found, path)
        meta = found.storage_meta or StorageMeta()
        meta.load_id = self.load_id
        found.storage_meta = meta
        return found

    def _inside(self, found: Metadata, path: Path) -> None:
        """Refuse parts that lie outside the checkpoint's folder."""
        folder = path.parent.resolve()
        for part in {info.relative_path for info in (found.storage_data or {}).values()}:
            if not (folder / part).resolve().is_relative_to(folder):
                raise ValueError(f"{path} names the part {part!r}, which lies outside of the checkpoint")
