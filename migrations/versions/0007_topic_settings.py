"""Settings that both dialects have, and settings that are left to the service's defaults.

max_deliveries NULL: as max_retries and dlq_threshold say. lease_ms, ttl_ms, max_retries, dlq_threshold NULL: the
service's default. configured: somebody chose these settings, rather than that the topic came about by being used.

Revision ID: 0007
"""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

UP = [
    """
    ALTER TABLE holdfast.topics
        ALTER COLUMN lease_ms DROP NOT NULL,
        ALTER COLUMN max_deliveries DROP NOT NULL,
        ALTER COLUMN ttl_ms DROP NOT NULL,
        ADD COLUMN max_retries integer CHECK (max_retries BETWEEN 0 AND 10000),
        ADD COLUMN dlq_threshold integer CHECK (dlq_threshold BETWEEN 0 AND 10000),
        ADD COLUMN max_depth bigint NOT NULL DEFAULT 0 CHECK (max_depth >= 0),
        ADD COLUMN throughput_limit integer NOT NULL DEFAULT 0 CHECK (throughput_limit >= 0),
        ADD COLUMN replayable boolean NOT NULL DEFAULT false,
        ADD COLUMN replay_window_ms bigint NOT NULL DEFAULT 604800000
            CHECK (replay_window_ms BETWEEN 0 AND 315360000000),
        ADD COLUMN configured boolean NOT NULL DEFAULT true
    """,
]
# What was left to the defaults gets those that the service is delivered with.
DOWN = [
    """
    UPDATE holdfast.topics t SET
        lease_ms = coalesce(t.lease_ms, 30000),
        ttl_ms = coalesce(t.ttl_ms, 86400000),
        max_deliveries = coalesce(t.max_deliveries, CASE
            WHEN r.retries = 0 THEN 1 WHEN r.threshold = 0 THEN r.retries ELSE least(r.retries, r.threshold) END),
        on_exhausted = CASE
            WHEN t.max_deliveries IS NOT NULL THEN t.on_exhausted
            WHEN r.threshold BETWEEN 1 AND r.retries THEN 'dead_letter' ELSE 'fail' END::holdfast.exhaustion,
        dead_letter = CASE
            WHEN t.max_deliveries IS NULL AND r.threshold BETWEEN 1 AND r.retries
            THEN coalesce(t.dead_letter, t.name || '.dlq') ELSE t.dead_letter END,
        version = t.version + 1
    FROM (SELECT name, coalesce(max_retries, 3) AS retries, coalesce(dlq_threshold, max_retries, 3) AS threshold
          FROM holdfast.topics) r
    WHERE r.name = t.name AND (t.lease_ms IS NULL OR t.ttl_ms IS NULL OR t.max_deliveries IS NULL)
    """,
    """
    ALTER TABLE holdfast.topics
        ALTER COLUMN lease_ms SET NOT NULL,
        ALTER COLUMN max_deliveries SET NOT NULL,
        ALTER COLUMN ttl_ms SET NOT NULL,
        DROP COLUMN max_retries,
        DROP COLUMN dlq_threshold,
        DROP COLUMN max_depth,
        DROP COLUMN throughput_limit,
        DROP COLUMN replayable,
        DROP COLUMN replay_window_ms,
        DROP COLUMN configured
    """,
]


def upgrade() -> None:
    for statement in UP:
        op.execute(statement)


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
