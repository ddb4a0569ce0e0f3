-- Raises an error unless the lease is valid. FOR KEY SHARE keeps others from claiming or settling the job until the
-- caller's transaction ends. The lease can be extended meanwhile.
CREATE OR REPLACE FUNCTION holdfast.assert_lease(token text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    parts text[] := regexp_match(token, '^(.+):([0-9]{1,18}):lease_([0-9a-f]{32})$');
BEGIN
    IF parts IS NULL THEN
        RAISE EXCEPTION 'this is not the token of a claimed job' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM 1 FROM holdfast.jobs j
    WHERE j.topic = parts[1] AND j.seq = parts[2]::bigint AND j.state::text = 'leased'
      AND j.lease_id = parts[3]::uuid AND j.visible_at >= clock_timestamp()
    FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the lease on job % of topic "%" has ended', parts[2], parts[1]
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END $$;
