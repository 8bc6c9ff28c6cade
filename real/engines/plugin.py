"""What runs inside vLLM: a transfer of weights or adapters from files, and token grammars.

vLLM is imported only when it asks for one of them.

The launcher puts a copy of this file, with its entry points, on the path of the engine's interpreter, so that nothing
has to be installed there. Written for vLLM 0.32 and 0.33.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

BACKEND = "file"
"""Name of the weight transfer, as in ``--weight-transfer-config``."""
GRAMMAR_FILE = "dartsim_grammar.npz"
"""The grammar in a model folder: ``follows``, int32 [states, tokens], -1 for the end, -2 for a refused token."""
GRAMMAR_KEY = "dartsim_grammar"
"""The key of ``SamplingParams.extra_args`` that asks for the grammar."""
ENTRY_POINTS = """[vllm.general_plugins]
dartsim = {module}:register

[vllm.logits_processors]
dartsim = {module}:GrammarProcessor
"""
"""The entry points of a copy of this file; see ``dartsim.real.engines.launcher``."""

ADAPTER_FILE = "adapter_model.safetensors"
"""What an adapter's folder holds in place of a model's files."""

_END, _REFUSED = -1, -2
_ADAPTER = 1
"""vLLM's number of the adapter that an engine was started with."""


def register() -> None:
    """Register the file transfer with vLLM; called in each of its processes, perhaps more than once."""
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, __name__, "FileEngine")


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _file_engine() -> type[Any]:
    """Return the transfer engine: weights in files that every worker of the engine can read.

    ``update_weights`` takes ``path`` (a file or folder of safetensors, under the root given at first) and ``sha256``
    (by file name). All files are read and checked before the model is touched, and a layer is only replaced when
    all of its weights are there; layers without weights are an error.
    """
    from dataclasses import dataclass, field

    from vllm.distributed.weight_transfer.base import (
        WeightTransferEngine,
        WeightTransferInitInfo,
        WeightTransferUpdateInfo,
    )

    @dataclass
    class Init(WeightTransferInitInfo):  # type: ignore[misc]
        root: str = "/"

    @dataclass
    class Update(WeightTransferUpdateInfo):  # type: ignore[misc]
        path: str = ""
        sha256: dict[str, str] = field(default_factory=dict)

    class FileEngine(WeightTransferEngine[Init, Update]):  # type: ignore[misc]
        """Loads weights from files."""

        init_info_cls = Init
        update_info_cls = Update

        def init_transfer_engine(self, init_info: Init) -> None:
            self.root = Path(init_info.root)

        def start_weight_update(self) -> None:
            """Nothing: the model is touched only once the files are known to be good."""

        def finish_weight_update(self) -> None:
            """Nothing: each update is whole."""

        def update_weights(self, update_info: dict[str, Any]) -> None:
            # The inherited method waits for an accelerator, which there may not be.
            self.receive_weights(self.parse_update_info(update_info))

        def receive_weights(self, update_info: Update) -> None:
            files = _files(self.root / update_info.path)
            for name, wanted in update_info.sha256.items():
                found = digest(next(file for file in files if file.name == name))
                if found != wanted:
                    raise ValueError(f"{name} has SHA-256 {found}, wanted {wanted}: it was not written whole")
            if any(file.name == ADAPTER_FILE for file in files):
                self._adapt(self.root / update_info.path)
            else:
                self._load(files)

        def _adapt(self, folder: Path) -> None:
            """Replace the adapter that the engine was started with, in place: requests under way go on with it."""
            from vllm.lora.lora_model import LoRAModel
            from vllm.lora.peft_helper import PEFTHelper

            manager = getattr(self.model, "lora_manager", None)
            if manager is None:
                raise ValueError("an adapter cannot be loaded: the engine was started without --enable-lora")
            helper = PEFTHelper.from_local_dir(str(folder), None)
            helper.validate_legal(manager.lora_config)
            mapper = getattr(self.model, "hf_to_vllm_mapper", None)
            lora = LoRAModel.from_local_checkpoint(
                str(folder),
                {part for name in manager.modules for part in _parts(manager, name)},
                peft_helper=helper,
                lora_model_id=_ADAPTER,
                device="cpu",
                dtype=manager.lora_config.lora_dtype,
                weights_mapper=None if mapper is None else mapper.get_rename_mapper(),
            )
            kept = deepcopy(lora)  # the manager merges parts in place
            manager.remove_adapter(_ADAPTER)
            manager.add_adapter(lora)
            manager.activate_adapter(_ADAPTER)
            _compare(manager, kept, whole=self.parallel_config.tensor_parallel_size == 1)
            _load_from_now_on(kept)

        def _load(self, files: list[Path]) -> None:
            from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

            wanted = {name for name, _ in self.model.named_parameters()}
            initialize_layerwise_reload(self.model)
            try:
                loaded = self.model.load_weights(_tensors(files))
            finally:
                finalize_layerwise_reload(self.model, self.model_config)
            known = loaded is not None and self.model_config.quantization is None
            if known and (missing := sorted(wanted - set(loaded))):
                raise ValueError(f"{len(missing)} weights of the model were in no file, first {missing[0]}")

        def shutdown(self) -> None:
            """Nothing is held."""

    return FileEngine


def _parts(manager: Any, module: str) -> list[str]:
    """Return the names that checkpoints have for the parts of an engine's layer."""
    kind = module.rpartition(".")[2]
    return manager.packed_modules_mapping.get(kind) or [kind]


def _compare(manager: Any, lora: Any, *, whole: bool) -> None:
    """Check that the engine's layers hold what an adapter's file does; of divided ones, only that there are such.

    Raises:
        ValueError: If a part has no layer, or another content.
    """
    slot, missing = manager.lora_index_to_id.index(_ADAPTER), dict(lora.loras)
    for name, module in manager.modules.items():
        for number, part in enumerate(_parts(manager, name)):
            weights = missing.pop(f"{name.rpartition('.')[0]}.{part}", None)
            if weights is None or not whole:
                continue
            for tensor, stacked in ((weights.lora_a, module.lora_a_stacked), (weights.lora_b, module.lora_b_stacked)):
                rows, columns = tensor.shape
                held = stacked[number][slot, 0, :rows, :columns]
                if not bool((held == tensor.to(held.device, held.dtype)).all()):
                    raise ValueError(f"{name} does not hold the adapter's weights of {part}")
    if missing:
        raise ValueError(f"{len(missing)} parts of the adapter are for no layer, first {sorted(missing)[0]}")


def _load_from_now_on(lora: Any) -> None:
    """Let vLLM take this adapter whenever it loads the one that the engine was started with.

    At the end of every update of weights it forgets all adapters, and loads them again for the next request (0.32).
    """
    from vllm.lora.worker_manager import WorkerLoRAManager

    def load(self: Any, request: Any) -> Any:
        again = deepcopy(lora)
        again.id = request.lora_int_id
        return again

    WorkerLoRAManager._load_adapter = load


def _grammar_processor() -> type[Any]:
    """Return the logits processor that allows only what the grammar allows, token by token.

    It changes the sampled distribution, and so the processed log-probabilities, which equal those of the learner: it
    computes under the same mask.
    """
    import torch
    from vllm.v1.sample.logits_processor.builtin import process_dict_updates
    from vllm.v1.sample.logits_processor.interface import LogitsProcessor

    class GrammarProcessor(LogitsProcessor):  # type: ignore[misc]
        """Masks the logits of requests that ask for the grammar of the model's folder."""

        def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
            file = Path(vllm_config.model_config.model) / GRAMMAR_FILE
            self._follows = np.load(file, allow_pickle=False)["follows"] if file.is_file() else None
            self._refused = None
            if self._follows is not None:
                self._refused = torch.from_numpy(self._follows == _REFUSED).to(device)
            self._replies: dict[int, _Reply] = {}

        @classmethod
        def validate_params(cls, sampling_params: Any) -> None:
            """Nothing to check: a request without the key is left alone."""

        def is_argmax_invariant(self) -> bool:
            return False

        def update_state(self, batch_update: Any) -> None:
            process_dict_updates(self._replies, batch_update, self._begin)

        def _begin(self, params: Any, prompt: Any, output: list[int]) -> _Reply | None:
            return _Reply(output) if (params.extra_args or {}).get(GRAMMAR_KEY) else None

        def apply(self, logits: torch.Tensor) -> torch.Tensor:
            if not self._replies:
                return logits
            if self._follows is None or self._refused is None:
                raise RuntimeError(f"a request asks for a grammar and the model's folder holds no {GRAMMAR_FILE}")
            width = self._refused.shape[1]
            for row, reply in self._replies.items():
                # ``RequestCodec`` cuts a reply after its end; any token will do.
                state = max(reply.walk(self._follows), 0)
                logits[row, :width].masked_fill_(self._refused[state], float("-inf"))
                logits[row, width:] = float("-inf")
            return logits

    return GrammarProcessor


class _Reply:
    """The state of a reply in the grammar."""

    def __init__(self, tokens: list[int]) -> None:
        self._tokens = tokens
        self._seen = 0
        self._state = 0

    def walk(self, follows: Any) -> int:
        if len(self._tokens) < self._seen:  # started again after a preemption
            self._seen = self._state = 0
        for token in self._tokens[self._seen :]:
            if token < 0:
                raise RuntimeError("the tokens of a reply are not known yet; start vLLM with --no-async-scheduling")
            if self._state != _END:
                self._state = int(follows[self._state, token])
            self._seen += 1
        return self._state


def _files(path: Path) -> list[Path]:
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files:
        raise FileNotFoundError(f"{path} holds no safetensors file")
    return files


def _tensors(files: list[Path]) -> Iterator[tuple[str, Any]]:
    from safetensors.torch import load_file

    for file in files:
        yield from load_file(str(file)).items()


_LATE: dict[str, Callable[[], type[Any]]] = {"FileEngine": _file_engine, "GrammarProcessor": _grammar_processor}


def __getattr__(name: str) -> type[Any]:
    """Make the classes that need vLLM when vLLM asks for them."""
    if name not in _LATE:
        raise AttributeError(name)
    created = globals()[name] = _LATE[name]()
    return created
