"""Jobs that several connections stage, and one transaction puts in.

Revision ID: 0041
"""

import runpy
from pathlib import Path

from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None

AS_OWNER = runpy.run_path(str(Path(__file__).with_name("0014_inbox.py")))["AS_OWNER"]

TABLES = [
    # Who stages: one try of one task. Never UNLOGGED, so that its numbers are never given again.
    """
    CREATE TABLE holdfast.stages (
        attempt bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        run text COLLATE "C" NOT NULL,
        CONSTRAINT "run: 1 to 256 characters" CHECK (char_length(run) BETWEEN 1 AND 256)
    ) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0)
    """,
    "CREATE INDEX stages_run ON holdfast.stages (run)",
    # What is staged, with what the inbox asks of its rows. A crash of PostgreSQL empties it, and a commit counts.
    """
    CREATE UNLOGGED TABLE holdfast.staged (
        LIKE holdfast.inbox INCLUDING CONSTRAINTS INCLUDING STORAGE,
        attempt bigint NOT NULL,
        PRIMARY KEY (attempt, place)
    ) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0)
    """,
    # What was committed: of a stream its last batch.
    """
    CREATE TABLE holdfast.writes (
        batch bigint NOT NULL,
        jobs bigint NOT NULL,
        committed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        write_id text COLLATE "C" PRIMARY KEY,
        CONSTRAINT "write_id: 1 to 256 characters" CHECK (char_length(write_id) BETWEEN 1 AND 256)
    )
    """,
    "CREATE INDEX writes_old ON holdfast.writes (committed_at)",
]
# A function may not SET a parameter of ours at its head: that takes a superuser, and who migrates need not be one.
STAGING = [
    f"""
    CREATE FUNCTION holdfast.open_stage(of_run text) RETURNS bigint {AS_OWNER} AS $$
    DECLARE
        opened bigint;
    BEGIN
        INSERT INTO holdfast.stages (run) VALUES (of_run) RETURNING attempt INTO opened;
        RETURN opened;
    END $$
    """,
    # Rows of a try that was given up would lie there for ever: they are refused.
    f"""
    CREATE FUNCTION holdfast.hold_stage() RETURNS trigger {AS_OWNER} AS $$
    DECLARE
        first bigint;
        last bigint;
    BEGIN
        SELECT min(x.attempt), max(x.attempt) INTO first, last FROM added x;
        PERFORM 1 FROM holdfast.stages s WHERE s.attempt = first AND first = last FOR KEY SHARE;
        IF NOT FOUND AND first IS NOT NULL THEN
            RAISE EXCEPTION 'attempt % was given up, or these rows are of several', first
                USING ERRCODE = 'object_not_in_prerequisite_state';
        END IF;
        RETURN NULL;
    END $$
    """,
    # All that these attempts of a run have staged become jobs, or nothing does; false: they are already, by an earlier
    # commit of this batch, or a later one, of the same write. What they staged is gone from there either way.
    f"""
    CREATE FUNCTION holdfast.commit_stages(of_run text, of_write text, of_batch bigint, attempts bigint[], rows bigint)
    RETURNS boolean {AS_OWNER} AS $$
    DECLARE
        counted bigint;
    BEGIN
        INSERT INTO holdfast.writes AS w (write_id, batch, jobs) VALUES (of_write, of_batch, rows)
        ON CONFLICT (write_id) DO UPDATE
        SET batch = excluded.batch, jobs = excluded.jobs, committed_at = excluded.committed_at
        WHERE w.batch < excluded.batch;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        PERFORM 1 FROM holdfast.stages s WHERE s.attempt = ANY (attempts) AND s.run = of_run
        ORDER BY s.attempt FOR UPDATE;
        GET DIAGNOSTICS counted = ROW_COUNT;
        IF counted = cardinality(attempts) THEN
            PERFORM set_config('holdfast.commits', 'on', true);
            DELETE FROM holdfast.staged s WHERE s.attempt = ANY (attempts);
            GET DIAGNOSTICS counted = ROW_COUNT;
            PERFORM set_config('holdfast.commits', 'off', true);
            IF counted = rows THEN
                DELETE FROM holdfast.stages s WHERE s.attempt = ANY (attempts);
                RETURN true;
            END IF;
        END IF;
        RAISE EXCEPTION 'of % rows that were staged for write "%" not all are there, and nothing was written',
            rows, of_write USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'PostgreSQL crashed since then, or a day has passed. Write them again.';
    END $$
    """,
    # Up to `most` rows that were staged in this run, or without one more than a day ago: how many. Fewer than `most`:
    # that was all, but for what somebody is writing or committing.
    f"""
    CREATE FUNCTION holdfast.drop_stages(of_run text, most integer) RETURNS integer {AS_OWNER} AS $$
    DECLARE
        dropped integer := 0;
        gone integer;
        one bigint;
    BEGIN
        PERFORM set_config('holdfast.commits', 'off', true);
        FOR one IN
            SELECT s.attempt FROM holdfast.stages s
            WHERE s.run = of_run OR (of_run IS NULL AND s.started_at < clock_timestamp() - interval '1 day')
            ORDER BY s.attempt LIMIT 1000 FOR UPDATE SKIP LOCKED
        LOOP
            DELETE FROM holdfast.staged s
            WHERE s.ctid = ANY (ARRAY(
                SELECT x.ctid FROM holdfast.staged x WHERE x.attempt = one LIMIT most - dropped));
            GET DIAGNOSTICS gone = ROW_COUNT;
            dropped := dropped + gone;
            EXIT WHEN dropped >= most;
            DELETE FROM holdfast.stages s WHERE s.attempt = one;
        END LOOP;
        RETURN dropped;
    END $$
    """,
]
# Triggers of one kind fire by their names. What leaves the staged rows otherwise than by a commit becomes nothing.
BY_COMMIT = "FOR EACH STATEMENT WHEN (current_setting('holdfast.commits', true) = 'on')"
TRIGGERS = [
    *(
        f"""
        CREATE TRIGGER {name} AFTER INSERT ON holdfast.staged REFERENCING NEW TABLE AS added
        FOR EACH STATEMENT EXECUTE FUNCTION holdfast.{name}()
        """
        for name in ("hold_stage", "check_inbox")
    ),
    *(
        f"""
        CREATE TRIGGER {name} AFTER DELETE ON holdfast.staged REFERENCING OLD TABLE AS added
        {BY_COMMIT} EXECUTE FUNCTION holdfast.{name}()
        """
        for name in ("refuse_drained", "take_inbox")
    ),
]
TRIGGERED = ("hold_stage()",)
CALLED = (
    "open_stage(text)",
    "commit_stages(text, text, bigint, bigint[], bigint)",
    "drop_stages(text, integer)",
)


def granted(function: str) -> str:
    """Who runs the service as a lesser role may run this as well: what such roles were granted, they keep."""
    return f"""
    DO $$
    DECLARE
        name text;
    BEGIN
        FOR name IN
            SELECT g.grantee::regrole::text FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) g
            WHERE p.oid = 'holdfast.drop_topic_sequence(integer)'::regprocedure AND g.grantee NOT IN (0, p.proowner)
        LOOP
            EXECUTE format('GRANT EXECUTE ON FUNCTION holdfast.{function} TO %s', name);
        END LOOP;
    END $$
    """


def upgrade() -> None:
    for statement in (*TABLES, *STAGING, *TRIGGERS):
        op.execute(statement)
    for function in (*TRIGGERED, *CALLED):
        op.execute(f"REVOKE EXECUTE ON FUNCTION holdfast.{function} FROM PUBLIC")
    for function in CALLED:
        op.execute(granted(function))


def downgrade() -> None:
    op.execute("DROP TABLE holdfast.staged, holdfast.stages, holdfast.writes")
    for function in (*TRIGGERED, *CALLED):
        op.execute(f"DROP FUNCTION holdfast.{function}")
