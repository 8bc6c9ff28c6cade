"""Which tables a database has: made if it is empty, upgraded if they are older, refused if they are newer.

Upgrades are alembic's, without its configuration file; it is loaded only where there is something to upgrade.
Each runs in one transaction: after a crash in the middle the database is as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from sqlalchemy import Column, MetaData, String, Table, inspect, select
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError

from dartsim.store.errors import LayoutUnknown
from dartsim.store.sql.tables import LAYOUT, METADATA
from dartsim.store.sql.writer import fault_of

REVISION = Table(
    "alembic_version", MetaData(), Column("version_num", String(32), primary_key=True, comment="the layout")
)
"""Alembic's own table."""
KNOWN = ("1", LAYOUT)
"""Layouts that this version of dartsim can read or upgrade, oldest first."""


def prepare(engine: Engine) -> None:
    """Bring a database to the present layout.

    Raises:
        LayoutUnknown: If a newer dartsim made it, or it holds somebody else's tables; nothing is changed.
        StoreFault: If it does not answer.
    """
    try:
        with engine.begin() as connection:
            found = layout_of(connection)
            if found is None:
                METADATA.create_all(connection)
                _stamp(connection)
            elif found != LAYOUT:
                upgrade(connection, found)
    except DBAPIError as error:
        raise fault_of(error) from error


def layout_of(connection: Connection) -> str | None:
    """Return the layout of a database; None if it is empty.

    Raises:
        LayoutUnknown: If it is none of ours.
    """
    tables = set(inspect(connection).get_table_names())
    if REVISION.name in tables:
        found = connection.scalars(select(REVISION.c.version_num)).all()
        if len(found) == 1 and found[0] in KNOWN:
            return str(found[0])
        raise LayoutUnknown(
            f"the database has layout {' and '.join(found) or 'none'}, and this dartsim knows layouts up to {LAYOUT}: "
            "a newer dartsim made it; use that one, or give the run another folder or database"
        )
    if {"trajectories", "updates"} <= tables:
        return "1"  # before layouts were numbered
    if tables:
        raise LayoutUnknown(
            f"the database holds tables that are not dartsim's ({', '.join(sorted(tables)[:3])}); give another one"
        )
    return None


def upgrade(connection: Connection, old: str, new: str = LAYOUT) -> Sequence[str]:
    """Bring a database from an older layout to a newer one; return the layouts it went through.

    Args:
        connection: In a transaction, which the caller commits.
        old: What it has.
        new: What it gets.
    """
    # Imported here: it takes longer to load than most simulations take to begin.
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(files("dartsim.store") / "migrations"))
    passed: list[str] = []

    def steps(_found: object, _context: object) -> list[object]:
        return list(scripts._upgrade_revs(new, old))

    context = MigrationContext.configure(
        connection,
        opts={
            "fn": steps,
            "transactional_ddl": True,
            "on_version_apply": [lambda step, **_: passed.append(str(step.up_revision_id))],
        },
    )
    if old == "1" and not inspect(connection).has_table(REVISION.name):
        _stamp(connection, old)
    from alembic.operations import Operations

    with Operations.context(context):
        context.run_migrations()
    return passed


def _stamp(connection: Connection, layout: str = LAYOUT) -> None:
    REVISION.create(connection)
    connection.execute(REVISION.insert().values(version_num=layout))
