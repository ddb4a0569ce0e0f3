-- What PUBLIC may not do. The schema makes no roles, and grants nothing: docs/operations/postgres.md and docs/sql.md have the
-- grants for a role that runs the service, and for one that writes SQL.
--
-- Functions that run as their owner would lend everybody the owner's rights. Others have the schema too: those who only
-- write SQL.

-- What makes and drops sequences and partitions, and trigger functions.
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

-- What SQL users call, each role by a grant.
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
