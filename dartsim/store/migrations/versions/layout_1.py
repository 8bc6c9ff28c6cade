"""Layout 1: trajectories and updates, as the first version of dartsim made them."""

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "trajectories",
        sa.Column("attempt", sa.Integer, primary_key=True, comment="number of the attempt"),
        sa.Column("task", sa.String, nullable=False, index=True),
        sa.Column("group", sa.Integer, nullable=False),
        sa.Column("ending", sa.String, nullable=False),
        sa.Column("cause", sa.String, comment="of a masked attempt"),
        sa.Column("reward", sa.Float, comment="null if masked"),
        sa.Column("num_turns", sa.Integer, nullable=False),
        sa.Column("oldest_version", sa.Integer, nullable=False),
        sa.Column("newest_version", sa.Integer, nullable=False),
        sa.Column("started", sa.Float, nullable=False, comment="seconds of loop time"),
        sa.Column("finished", sa.Float, nullable=False, comment="seconds of loop time"),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("reason", sa.String, comment="of a dropped trajectory"),
        sa.Column("update", sa.Integer, comment="that leased or trained it"),
    )
    op.create_table(
        "updates",
        sa.Column("update", sa.Integer, primary_key=True),
        sa.Column("version", sa.Integer, nullable=False, comment="that it made"),
        sa.Column("num_trajectories", sa.Integer, nullable=False),
        sa.Column("num_turns", sa.Integer, nullable=False),
    )
