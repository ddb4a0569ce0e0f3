-- How deep a JSON document is nested.
CREATE OR REPLACE FUNCTION holdfast.json_depth(document text) RETURNS bigint
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(max(d.depth), 0) FROM (
        SELECT sum(CASE WHEN b.bracket IN ('[', '{') THEN 1 ELSE -1 END) OVER (ORDER BY b.ord) AS depth
        FROM unnest(string_to_array(
            regexp_replace(regexp_replace(document, '"([^"\\]|\\.)*"', '', 'g'), '[^][{}]', '', 'g'), NULL
        )) WITH ORDINALITY AS b(bracket, ord)
    ) d
$$;

-- The fault of a record; NULL if there is none.
CREATE OR REPLACE FUNCTION holdfast.find_fault(payload text, content_type text, metadata text) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    reason text;
BEGIN
    BEGIN
        IF jsonb_typeof(metadata::jsonb) <> 'object' THEN
            RETURN 'metadata is not a JSON object';
        END IF;
    EXCEPTION WHEN data_exception OR statement_too_complex THEN
        GET STACKED DIAGNOSTICS reason = PG_EXCEPTION_DETAIL;
        RETURN 'metadata is not JSON that can be stored: ' || left(coalesce(nullif(reason, ''), SQLERRM), 300);
    END;
    IF holdfast.json_depth(metadata) > 128 THEN
        RETURN 'metadata is nested more than 128 levels deep';
    END IF;
    IF (find_fault.content_type IS NULL OR find_fault.content_type ~* '^ *(application/json|[^;]*\+json) *(;|$)') THEN
        BEGIN
            PERFORM payload::jsonb;
        EXCEPTION WHEN data_exception OR statement_too_complex THEN
            GET STACKED DIAGNOSTICS reason = PG_EXCEPTION_DETAIL;
            RETURN 'the payload is not JSON that can be stored, as '
                   || coalesce(find_fault.content_type, 'application/json (no content_type)') || ' requires: '
                   || left(coalesce(nullif(reason, ''), SQLERRM), 300);
        END;
        IF holdfast.json_depth(payload) > 128 THEN
            RETURN 'the payload is nested more than 128 levels deep';
        END IF;
    END IF;
    RETURN NULL;
END $$;
