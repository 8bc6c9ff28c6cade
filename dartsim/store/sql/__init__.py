"""The SQL store: trajectories, what became of them, and what a run needs to go on, as rows and files."""

from dartsim.store.sql.engine import open_sqlite, open_url, schema_name
from dartsim.store.sql.load import Torn, load_trajectories
from dartsim.store.sql.opening import open_store
from dartsim.store.sql.recovery import Recovered
from dartsim.store.sql.store import Durability, Keep, SqlStore
from dartsim.store.sql.successes import load_successes
from dartsim.store.sql.tables import METADATA, TRAJECTORIES, UPDATES

__all__ = [
    "METADATA",
    "TRAJECTORIES",
    "UPDATES",
    "Durability",
    "Keep",
    "Recovered",
    "SqlStore",
    "Torn",
    "load_successes",
    "load_trajectories",
    "open_sqlite",
    "open_store",
    "open_url",
    "schema_name",
]
