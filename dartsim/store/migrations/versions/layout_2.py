"""Layout 2: turns and their files, batches, versions, checkpoints, the success pool, documents, and who writes.

Trajectories of layout 1 keep what was known of them; their turns were never kept.
"""

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add columns and tables, and what can be told of versions from the updates there are."""
    for column in (
        sa.Column("index", sa.Integer),
        sa.Column("seed", sa.BigInteger),
        sa.Column("turn_limit", sa.Integer),
        sa.Column("version", sa.Integer),
        sa.Column("ready", sa.Float),
        sa.Column("kept_bytes", sa.BigInteger),
    ):
        op.add_column("trajectories", column)
    op.create_index("ix_trajectories_state", "trajectories", ["state", "finished"])
    _trajectories_in_full()
    _updates_and_what_they_made()
    op.create_table(
        "successes",
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("origin", sa.String, nullable=False),
        sa.Column("stored", sa.Float, nullable=False),
        sa.Column("uses", sa.Integer, nullable=False),
    )
    op.create_table(
        "documents",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("text", sa.String, nullable=False),
    )
    op.create_table(
        "meta",
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("value", sa.String, nullable=False),
    )


def _trajectories_in_full() -> None:
    op.create_table(
        "tasks",
        sa.Column("task", sa.String, primary_key=True),
        sa.Column("instruction", sa.String, nullable=False),
        sa.Column("domain", sa.String, nullable=False),
        sa.Column("spec", sa.String, nullable=False),
    )
    op.create_table(
        "turns",
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("turn", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("action", sa.String, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("oldest_version", sa.Integer, nullable=False),
        sa.Column("worker", sa.Integer, nullable=False),
        sa.Column("prompt_tokens", sa.Integer, nullable=False),
        sa.Column("response_tokens", sa.Integer, nullable=False),
        sa.Column("tokens", sa.LargeBinary),
        sa.Column("logprobs", sa.LargeBinary),
        sa.Column("entropies", sa.LargeBinary),
        sa.Column("screenshot", sa.String),
        sa.Column("tree", sa.String),
        sa.Column("instruction", sa.String),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )
    for name in ("screenshot", "tree"):
        there = sa.text(f"{name} IS NOT NULL")
        op.create_index(f"ix_turns_{name}", "turns", [name], sqlite_where=there, postgresql_where=there)
    op.create_table(
        "blobs",
        sa.Column("blob", sa.String, primary_key=True),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
    )


def _updates_and_what_they_made() -> None:
    op.create_table(
        "batches",
        sa.Column("batch", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("update", sa.Integer, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("num_trajectories", sa.Integer, nullable=False),
        sa.Column("num_turns", sa.Integer, nullable=False),
        sa.Column("state", sa.String, nullable=False),
    )
    op.create_table(
        "batch_members",
        sa.Column("batch", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
    )
    op.create_table(
        "versions",
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("update", sa.Integer, nullable=False),
        sa.Column("parent", sa.Integer, nullable=False),
    )
    op.create_table(
        "checkpoints",
        sa.Column("update", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("folder", sa.String, nullable=False),
        sa.Column("digest", sa.String, nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
    )
    op.execute('INSERT INTO versions (version, "update", parent) SELECT version, "update", version - 1 FROM updates')
