"""The SQL store: trajectories, what became of them, and what a run needs to go on, as rows and files."""

from dartsim.curation.sql.engine import open_sqlite, open_url, schema_name
from dartsim.curation.sql.load import Torn, load_trajectories
from dartsim.curation.sql.opening import open_store
from dartsim.curation.sql.recovery import Recovered
from dartsim.curation.sql.store import Durability, Keep, SqlStore
from dartsim.curation.sql.successes import load_successes
from dartsim.curation.sql.tables import METADATA, TRAJECTORIES, UPDATES

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
