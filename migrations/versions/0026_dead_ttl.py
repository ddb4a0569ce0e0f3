"""How long a topic keeps what is out: dead letters that it holds, and jobs that failed or expired in it.

Revision ID: 0026
"""

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # 0: for ever.
    op.execute("""
        ALTER TABLE holdfast.topics ADD COLUMN dead_ttl_ms bigint NOT NULL DEFAULT 1209600000
            CHECK (dead_ttl_ms BETWEEN 0 AND 315360000000)
    """)


def downgrade() -> None:
    op.execute("ALTER TABLE holdfast.topics DROP COLUMN dead_ttl_ms")
