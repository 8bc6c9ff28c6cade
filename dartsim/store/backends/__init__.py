"""Kinds of stores, by the name or the scheme of the URL in ``curation.store``. Another one is another module here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from dartsim.core.errors import ConfigError
from dartsim.core.files import below
from dartsim.core.ports import Store
from dartsim.core.registry import NamedComponent, component, names, register

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from dartsim.store.load import StoredScore
    from dartsim.store.sql import Durability


class StoreBackend(NamedComponent):
    """Opens the stores of a kind."""

    resumable: ClassVar[bool] = True
    """Whether another process can resume a run from it."""
    by_url: ClassVar[bool] = False
    """Whether a URL names it; else its name alone."""

    def open(self, where: str, folder: Path, **options: Any) -> Store:
        raise NotImplementedError

    def documents(self, where: str, folder: Path) -> Mapping[str, Any] | None:
        """Return the documents that a run saved, without changing anything; None if the store has nothing of it.

        Raises:
            StoreFault: If the database does not answer, or is damaged.
        """
        with closing(self.open(where, folder)) as store:
            return store.documents() or None

    def scores(self, where: str, folder: Path) -> list[StoredScore]:
        """Return how the rewards of a run were computed; a process that writes the store is not disturbed.

        Raises:
            ConfigError: If the store does not outlive its run, or is not there.
            StoreFault: If the database does not answer.
        """
        raise ConfigError(f'{folder} was run with curation.store = "{where}", of which nothing is left')


@register("store", "memory")
class MemoryBackend(StoreBackend):
    """Keeps states in memory, and nothing after the run."""

    resumable = False

    @override
    def open(self, where: str, folder: Path, **options: Any) -> Store:
        from dartsim.store.memory import MemoryStore

        return MemoryStore()


class SqlBackend(StoreBackend):
    """Keeps the run in a database."""

    def engine(self, where: str, folder: Path, *, durable: bool) -> Engine:
        raise NotImplementedError

    @override
    def open(
        self,
        where: str,
        folder: Path,
        *,
        durability: Durability = "batched",
        screenshots: bool = True,
        checkpoints: bool = False,
        **options: Any,
    ) -> Store:
        from dartsim.store.blobs import BlobStore
        from dartsim.store.sql import CHECKPOINTS_FOLDER, SCREENS_FOLDER, SqlStore

        durable = durability == "each"
        blobs = BlobStore(folder / SCREENS_FOLDER, durable=durable) if screenshots else None
        return SqlStore(
            self.engine(where, folder, durable=durable),
            durability=durability,
            blobs=blobs if options.get("keep") != "none" else None,
            checkpoints=folder / CHECKPOINTS_FOLDER if checkpoints else None,
            **options,
        )

    @contextmanager
    def reading(self, where: str, folder: Path) -> Iterator[Engine]:
        """Open the database for reading."""
        engine = self.engine(where, folder, durable=False)
        try:
            yield engine
        finally:
            engine.dispose()

    @override
    def documents(self, where: str, folder: Path) -> Mapping[str, Any] | None:
        from dartsim.store.database import stored_documents

        with self.reading(where, folder) as engine:
            return stored_documents(engine)

    @override
    def scores(self, where: str, folder: Path) -> list[StoredScore]:
        from dartsim.store.load import load_scores

        with self.reading(where, folder) as engine:
            return load_scores(engine)


@register("store", "sqlite")
class SqliteBackend(SqlBackend):
    """Keeps the run in a file in its directory."""

    @override
    def engine(self, where: str, folder: Path, *, durable: bool) -> Engine:
        from dartsim.store.database import open_sqlite
        from dartsim.store.sql import DATABASE_FILE

        return open_sqlite(folder / DATABASE_FILE, durable=durable)

    @override
    @contextmanager
    def reading(self, where: str, folder: Path) -> Iterator[Engine]:
        from dartsim.store.database import reading_sqlite
        from dartsim.store.sql import DATABASE_FILE

        with reading_sqlite(below(folder, DATABASE_FILE)) as engine:
            yield engine

    @override
    def documents(self, where: str, folder: Path) -> Mapping[str, Any] | None:
        from dartsim.store.sql import DATABASE_FILE

        return super().documents(where, folder) if (folder / DATABASE_FILE).is_file() else None

    @override
    def scores(self, where: str, folder: Path) -> list[StoredScore]:
        from dartsim.store.sql import DATABASE_FILE

        if not (folder / DATABASE_FILE).is_file():
            raise ConfigError(f"{folder} has no {DATABASE_FILE}: its attempts were removed")
        return super().scores(where, folder)


@register("store", "postgresql")
class PostgresBackend(SqlBackend):
    """Keeps the run in a schema of a PostgreSQL database, named as the run directory."""

    by_url = True

    @override
    def engine(self, where: str, folder: Path, *, durable: bool) -> Engine:
        from dartsim.store.database import open_url, schema_name

        return open_url(where, schema=schema_name(folder.resolve().name))

    @override
    def documents(self, where: str, folder: Path) -> Mapping[str, Any] | None:
        from dartsim.store.database import open_url, schema_name, stored_documents

        engine = open_url(where)  # the schema is not made
        try:
            return stored_documents(engine, schema_name(folder.resolve().name))
        finally:
            engine.dispose()


def store_backend(where: str) -> StoreBackend:
    """Return the backend of a store.

    Raises:
        ConfigError: If there is none.
    """
    scheme, is_url, _ = where.partition("://")
    name = "postgresql" if scheme == "postgres" else scheme.partition("+")[0]
    backend: StoreBackend | None = component("store", name) if name in names("store") else None
    if backend is None or backend.by_url != bool(is_url):
        raise ConfigError(
            f'curation.store = "{where}" is no store: it must be "memory", "sqlite", or a URL like '
            '"postgresql://user@host/name".'
        )
    return backend


def open_store(where: str, folder: Path, **options: Any) -> Store:
    """Open the store of a run, and create it if it is missing.

    Args:
        where: ``memory``, ``sqlite`` (a file in the run directory), or a PostgreSQL URL, where the run has a schema
            that is named as its directory.
        folder: The run directory; it exists.
        options: Those of ``SqlStore``; and ``screenshots``, whether screenshots and accessibility trees are kept
            under ``screens``; and ``checkpoints``, whether the learner writes checkpoints under ``checkpoints``,
            without which its updates do not count after a crash.

    Raises:
        ConfigError: If there is no such store.
        LayoutUnknown: If another version of dartsim created it.
        StoreFault: If the database does not answer.
    """
    return store_backend(where).open(where, folder, **options)
