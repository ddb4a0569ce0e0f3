"""Since when a job's events are shown is worked out once, and not for every event that is looked at.

Revision ID: 0046
"""

from alembic import op
from sqlalchemy import Connection

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None

# A condition that calls events_from was worked out for each row of each range that the BRIN leaves: 64 us, where the
# row costs 0.4. A variable is a constant for the plan, which leaves whole days out by it as well. And a topic has no
# events from before it was made: of a young one no more is read than has happened since.
FIRST = """greatest(
            %s, holdfast.events_from(of_topic_id),
            (SELECT t.created_at FROM holdfast.topics t WHERE t.id = of_topic_id))"""
BEGIN = "\n    BEGIN\n"
# By function: what bounds its events already, the condition that stood there, and the one that stands there now.
FUNCTIONS = {
    "holdfast.job_events(integer,bigint,timestamptz,integer)": (
        "since",
        "e.at >= greatest(since, holdfast.events_from(of_topic_id))",
        "e.at >= first_at",
    ),
    "holdfast.last_events(integer,bigint,integer)": (
        "'-infinity'",
        "e.at >= holdfast.events_from(of_topic_id)",
        "e.at >= first_at",
    ),
    "holdfast.recent_events(integer,float8)": (
        "now() - seconds * interval '1 second'",
        "e.at > greatest(now() - seconds * interval '1 second', holdfast.events_from(of_topic_id))",
        "e.at > first_at",
    ),
}


def upgrade() -> None:
    for name, (bound, was, now) in FUNCTIONS.items():
        change(op.get_bind(), name, (BEGIN, declared(bound)), (was, now))


def downgrade() -> None:
    for name, (bound, was, now) in FUNCTIONS.items():
        change(op.get_bind(), name, (declared(bound), BEGIN), (now, was))


def declared(bound: str) -> str:
    return f"\n    DECLARE\n        first_at CONSTANT timestamptz := {FIRST % bound};{BEGIN}"


def change(db: Connection, name: str, *parts: tuple[str, str]) -> None:
    """Make a function anew as it stands, but with other texts for those that it has once."""
    body = db.exec_driver_sql(f"SELECT pg_get_functiondef('{name}'::regprocedure)").scalar_one()
    for was, now in parts:
        assert body.count(was) == 1, (name, was)
        body = body.replace(was, now)
    db.exec_driver_sql(body)
