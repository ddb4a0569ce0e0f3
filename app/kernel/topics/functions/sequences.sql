-- The sequence from which a topic draws its seqs and positions. Only the schema's owner, the role of the service, can
-- create and drop one. With CACHE 1, positions become visible in about the order in which they are drawn (ADR 0012).
CREATE OR REPLACE FUNCTION holdfast.create_topic_sequence(topic_id integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('CREATE SEQUENCE holdfast.%I AS bigint CACHE 1', 'seq_' || topic_id);
END $$;

CREATE OR REPLACE FUNCTION holdfast.drop_topic_sequence(topic_id integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('DROP SEQUENCE IF EXISTS holdfast.%I', 'seq_' || topic_id);
END $$;
