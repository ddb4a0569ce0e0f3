-- Revokes rights from PUBLIC. The schema creates no roles and grants nothing: docs/operations/postgres.md and docs/sql.md
-- have the grants for the service's role and for SQL users.
--
-- SECURITY DEFINER functions would give everybody their owner's rights, and SQL users can access the schema too.

-- Functions that create and drop sequences and partitions, and trigger functions.
REVOKE EXECUTE ON FUNCTION
    holdfast.create_topic_sequence(integer),
    holdfast.drop_topic_sequence(integer),
    holdfast.create_day_partitions(text, integer),
    holdfast.drop_day_partitions(text, integer, boolean),
    holdfast.drop_result_partitions(boolean),
    holdfast.check_inbox(),
    holdfast.refuse_drained(),
    holdfast.take_inbox(),
    holdfast.hold_stage(),
    holdfast.add_new_lanes(),
    holdfast.find_fault(text, text, text)
FROM PUBLIC;

-- Functions for SQL users. Each role needs a grant.
REVOKE EXECUTE ON FUNCTION
    holdfast.enqueue(text, bytea, text, jsonb, text, text, integer, bigint, timestamptz, bigint, integer, text, text, text,
                     text, text, text),
    holdfast.enqueue(text, text, text, jsonb, text, text, integer, bigint, timestamptz, bigint, integer, text, text, text,
                     text, text, text),
    holdfast.enqueue(text, jsonb, text, jsonb, text, text, integer, bigint, timestamptz, bigint, integer, text, text, text,
                     text, text, text),
    holdfast.complete(text, json),
    holdfast.assert_lease(text),
    holdfast.open_stage(text),
    holdfast.commit_stages(text, text, bigint, bigint[], bigint),
    holdfast.drop_stages(text, integer)
FROM PUBLIC;
