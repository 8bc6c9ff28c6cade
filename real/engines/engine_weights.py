"""``EngineWeights``: one engine and the weights in it: started with them, changed, named and confirmed.

    weights --Spool--> folder --Ledger--> complete? --pause, reload or restart--> engine --Ledger--> confirmed

``EngineSupervisor`` decides when.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from dartsim.core.types import Version, Weights
from dartsim.real.engines.client import EngineClient, PauseMode
from dartsim.real.engines.errors import (
    EngineBadReply,
    EngineStartFailed,
    EngineUnloaded,
    WeightsRefused,
    WeightsUnconfirmed,
)
from dartsim.real.engines.launcher import Engine
from dartsim.real.engines.ledger import EngineParameters, FolderFacts, WeightsLedger, is_adapter_folder
from dartsim.real.engines.weights import Spool

_ADAPTER = 1
"""vLLM's number of the adapter that an engine was started with."""


class EngineWeights:
    """Puts weights into one engine. Knows nothing about requests; calls must not overlap."""

    def __init__(
        self,
        engine: Engine,
        *,
        ledger: WeightsLedger | None = None,
        spool: Spool | None = None,
    ) -> None:
        self.engine = engine
        self.client: EngineClient | None = None
        self._ledger = ledger or WeightsLedger()
        self._spool = spool
        self._parameters: EngineParameters | None = None
        """Checksums of the engine's weights; None if unknown."""

    async def read(self, weights: Weights) -> FolderFacts:
        """Inspect the folder of weights; tensors are written to one first.

        Raises:
            WeightsTorn: If the folder is gone, incomplete, or of another model.
            WeightsRefused: If there is nothing to load.
        """
        if self._spool is not None:
            folder = await self._spool.folder(weights)
        elif isinstance(weights.source, str | Path):
            folder = Path(weights.source)
        else:
            raise EngineUnloaded(
                f"version {weights.version} came as {type(weights.source).__name__}; wanted a folder, or give the "
                "worker a Spool"
            )
        return await asyncio.to_thread(self._ledger.inspect, folder)

    async def start(self, first: Weights) -> None:
        """Start the engine with the weights it is configured with.

        Raises:
            EngineStartFailed: If it did not become healthy.
            WeightsUnconfirmed: If it has other weights.
        """
        await self.engine.start()
        await self.connect()
        client = self.connected()
        if await client.paused():
            await client.resume()  # its last client left it paused
        await client.label(first.version)
        if first.source is not None:
            facts = await asyncio.to_thread(self._ledger.inspect, Path(first.source))
            await self._confirm(first.version, facts)

    async def restart(self, version: Version, facts: FolderFacts) -> None:
        """Restart the process, from the folder of the weights if it is a whole model's; it may be left paused.

        An attached engine is only checked again, and loaded if it has other weights by now.
        """
        await self.stop()
        if not self.engine.can_restart:
            await self.connect()
            try:
                await self._confirm(version, facts)
            except WeightsUnconfirmed:
                await self.change(version, facts, "abort")
            return
        whole = facts.path.is_dir() and (facts.path / "config.json").is_file()
        await self._start_process(facts.path if whole else None)
        await self.connect()
        if whole:
            await self.connected().label(version)
            await self._confirm(version, facts)
        else:
            await self.change(version, facts, "wait")

    async def _start_process(self, folder: Path | None) -> None:
        """Start the process from a folder, which newer versions may replace meanwhile."""
        if folder is None or self._spool is None:
            await self.engine.start(folder)
            return
        async with self._spool.stable_copy(folder) as copy:
            await self.engine.start(copy)

    async def stop(self) -> None:
        await self._disconnect()
        await self.engine.stop()

    def connected(self) -> EngineClient:
        """Return the connection.

        Raises:
            EngineStartFailed: If there is none.
        """
        if self.client is None:
            raise EngineStartFailed(f"{self.engine.name} is not up; start the worker first")
        return self.client

    async def connect(self) -> None:
        await self._disconnect()
        self.client = EngineClient(self.engine.url)

    async def _disconnect(self) -> None:
        client, self.client, self._parameters = self.client, None, None
        if client is not None:
            await client.close()

    async def change(self, version: Version, facts: FolderFacts, pause: PauseMode) -> None:
        """Change the weights of a running engine, which is left paused."""
        client = self.connected()
        await client.pause(pause)
        before = None if is_adapter_folder(facts.path) else await self._before_load(client, facts)
        try:
            await self._reload(client, facts.path)
        except EngineBadReply as error:
            raise WeightsRefused(f"version {version}: {error}") from error
        await client.label(version)
        await client.reset_caches()
        await self._confirm(version, facts, before)

    async def _reload(self, client: EngineClient, folder: Path) -> None:
        """Have a paused engine load a folder, which its host reads under the same path.

        vLLM ignores missing tensors; ``WeightsLedger.inspect`` finds them before.
        """
        if is_adapter_folder(folder):
            # Not by vLLM's route for adapters: running requests would keep the old one, and each later step would read
            # the new one from the disk again (0.32). After its removal it is read at the next step, for all requests.
            await self.engine.place_adapter(folder)
            await client.rpc("remove_lora", lora_id=_ADAPTER)
        else:
            root = folder.parent if folder.suffix == ".safetensors" else folder
            await client.rpc("reload_weights", weights_path=str(root.absolute()))

    async def _before_load(self, client: EngineClient, facts: FolderFacts) -> EngineParameters | None:
        """Return the parameters that the engine holds; empty if unknown."""
        before, self._parameters = self._parameters, None
        if before is None:
            await client.reset_weights()
            try:
                before = EngineParameters.zeroed(facts, await client.checksums())
            except EngineBadReply:  # vLLM has no weights at all after a reload that failed
                before = EngineParameters.zeroed(facts, {})
        return before

    async def _confirm(self, version: Version, facts: FolderFacts, before: EngineParameters | None = None) -> None:
        client = self.connected()
        label = await client.weight_label()
        if label != str(version):
            raise WeightsUnconfirmed(f"{self.engine.name} names its weights {label!r}, wanted {str(version)!r}")
        # An adapter is not among the weights with checksums.
        if not is_adapter_folder(facts.path):
            checksums = await client.checksums()
            foreign = not self.engine.can_restart
            self._ledger.confirm(version, facts, checksums, before=before, foreign=foreign)
            self._parameters = EngineParameters(checksums, facts.digests)
