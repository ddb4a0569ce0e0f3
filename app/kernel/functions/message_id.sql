-- The id of a job in the messages dialect: says where the job is. app/http/messages/ids.py is the same in Python.
CREATE OR REPLACE FUNCTION holdfast.message_id(topic_id integer, seq bigint) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT (lpad(to_hex($1), 8, '0') || '0000800' || to_hex($2 >> 62)
            || to_hex((-9223372036854775808) | ($2 & 4611686018427387903)))::uuid
$$;
