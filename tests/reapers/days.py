"""Days of tables by day that have passed."""

from __future__ import annotations

from app.base.db.pool import Pools


async def days_ago(pools: Pools, days: int, table: str, column: str) -> None:
    """As if what has just happened had been so many days ago: a day of that time gets the table's rows as they are.
    `column` is the time that they go by."""
    await pools.rest.execute(f"""
        DO $$
        DECLARE
            day timestamptz :=
                (date_trunc('day', now() AT TIME ZONE 'UTC') - interval '{days} days') AT TIME ZONE 'UTC';
        BEGIN
            EXECUTE format('CREATE TABLE IF NOT EXISTS holdfast.{table}_%s PARTITION OF holdfast.{table}
                            FOR VALUES FROM (%L) TO (%L)',
                           to_char(day AT TIME ZONE 'UTC', 'YYYYMMDD'), day, day + interval '1 day');
            UPDATE holdfast.{table} SET {column} = day + interval '1 hour';
            UPDATE holdfast.topics SET created_at = least(created_at, day);
        END $$
    """)
