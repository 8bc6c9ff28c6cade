"""``StoreWrapper``: the base class of stores that change or check some calls of another store."""

from __future__ import annotations

from typing import Any

from dartsim.core.ports import Store


class StoreWrapper:
    """A ``dartsim.core.ports.Store`` that passes every call it does not define to another store."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
