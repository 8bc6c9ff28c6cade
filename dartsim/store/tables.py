"""The tables of a run's database.

    tasks <- trajectories <- turns -> blobs (files)          batches <- batch_members -> trajectories
                  ^                                             ^
              successes                              updates -> versions, checkpoints
    documents: scheduler and random states by name          meta: layout, current writer and its last transaction

Numbers of tokens, log-probabilities and entropies are little-endian int32 and float32.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Index, Integer, LargeBinary, MetaData, String, Table

LAYOUT = "2"
"""The layout that this module describes: change it with the tables."""
LAYOUT_KEY, WRITER_KEY = "layout", "writer"
"""Keys of ``META``."""

METADATA = MetaData()

TASKS = Table(
    "tasks",
    METADATA,
    Column("task", String, primary_key=True),
    Column("instruction", String, nullable=False),
    Column("domain", String, nullable=False),
    Column("spec", String, nullable=False, comment="JSON: the task file"),
)

TRAJECTORIES = Table(
    "trajectories",
    METADATA,
    Column("attempt", Integer, primary_key=True, autoincrement=False, comment="below 0: collected before the run"),
    Column("task", String, nullable=False, index=True),
    Column("group", Integer, nullable=False),
    Column("ending", String, nullable=False),
    Column("cause", String, comment="of a masked attempt"),
    Column("reward", Float, comment="null if masked"),
    Column("score", String, comment="JSON: how the reward was computed; null: by a simulated desktop"),
    Column("num_turns", Integer, nullable=False),
    Column("oldest_version", Integer, nullable=False),
    Column("newest_version", Integer, nullable=False),
    Column("started", Float, nullable=False, comment="seconds of loop time"),
    Column("finished", Float, nullable=False, comment="seconds of loop time"),
    Column("state", String, nullable=False),
    Column("reason", String, comment="of a dropped trajectory"),
    Column("update", Integer, comment="that leased or trained it"),
    Column("index", Integer, comment="place in its group"),
    Column("seed", BigInteger),
    Column("turn_limit", Integer),
    Column("version", Integer, comment="newest published one when it was admitted"),
    Column("ready", Float, comment="when its group became eligible, seconds of loop time; null: not yet"),
    Column("kept_bytes", BigInteger, comment="of its turns; null: they are not kept, or not any more"),
    Index("ix_trajectories_state", "state", "finished"),
)

TURNS = Table(
    "turns",
    METADATA,
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("turn", Integer, primary_key=True, autoincrement=False, comment="from 0"),
    Column("action", String, nullable=False),
    Column("version", Integer, nullable=False),
    Column("oldest_version", Integer, nullable=False),
    Column("worker", Integer, nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("response_tokens", Integer, nullable=False),
    Column("tokens", LargeBinary, comment="int32"),
    Column("logprobs", LargeBinary, comment="float32, nats"),
    Column("entropies", LargeBinary, comment="float32, nats"),
    Column("screenshot", String, comment="a blob; empty: there was one, and there was no room for it"),
    Column("tree", String, comment="the accessibility tree, likewise"),
    Column("instruction", String, comment="null: the task's"),
    Column("checksum", BigInteger, nullable=False, comment="CRC-32 of what the row holds"),
)
# Most turns of a simulation have neither, and each index costs as much as the row.
for _name in ("screenshot", "tree"):
    _there = TURNS.c[_name].is_not(None)
    Index(f"ix_turns_{_name}", TURNS.c[_name], sqlite_where=_there, postgresql_where=_there)

BLOBS = Table(
    "blobs",
    METADATA,
    Column("blob", String, primary_key=True, comment="file's name: SHA-256 of what it holds, and what kind it is"),
    Column("num_bytes", BigInteger, nullable=False),
)

BATCHES = Table(
    "batches",
    METADATA,
    Column("batch", Integer, primary_key=True, autoincrement=False, comment="from 1, counting failed ones"),
    Column("update", Integer, nullable=False),
    Column("version", Integer, nullable=False, comment="weights that it is trained with"),
    Column("num_trajectories", Integer, nullable=False),
    Column("num_turns", Integer, nullable=False),
    Column("state", String, nullable=False, comment="leased, trained, released, returned (by a restart)"),
)

BATCH_MEMBERS = Table(
    "batch_members",
    METADATA,
    Column("batch", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
)

UPDATES = Table(
    "updates",
    METADATA,
    Column("update", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False, comment="that it made"),
    Column("num_trajectories", Integer, nullable=False),
    Column("num_turns", Integer, nullable=False),
)

VERSIONS = Table(
    "versions",
    METADATA,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("update", Integer, nullable=False, comment="that made it"),
    Column("parent", Integer, nullable=False, comment="version that the update began with"),
)

CHECKPOINTS = Table(
    "checkpoints",
    METADATA,
    Column("update", Integer, primary_key=True, autoincrement=False, comment="last one that it contains"),
    Column("folder", String, nullable=False, comment="its name"),
    Column("digest", String, nullable=False, comment="SHA-256 of its manifest"),
    Column("num_bytes", BigInteger, nullable=False),
)

SUCCESSES = Table(
    "successes",
    METADATA,
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("origin", String, nullable=False, comment="collected, online"),
    Column("stored", Float, nullable=False, comment="seconds of loop time"),
    Column("uses", Integer, nullable=False),
)

DOCUMENTS = Table(
    "documents",
    METADATA,
    Column("name", String, primary_key=True),
    Column("text", String, nullable=False, comment="JSON"),
)

META = Table(
    "meta",
    METADATA,
    Column("key", String, primary_key=True),
    Column("value", String, nullable=False),
)
