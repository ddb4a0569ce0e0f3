-- Whether a payload is JSON with all of these values. The path to wanted[n] is the keys after ends[n - 1] up to
-- ends[n]. Values are compared as text: a string by its content, a number by its own digits. Objects, lists and
-- payloads that can't be read never match.
CREATE OR REPLACE FUNCTION holdfast.has_data(
    payload bytea, content_type text, keys text[], ends integer[], wanted text[]
) RETURNS boolean
LANGUAGE plpgsql STABLE COST 1000
AS $$
DECLARE
    document json;
    there json;
    kind text;
BEGIN
    IF lower(btrim(split_part(content_type, ';', 1))) !~ '^application/json$|\+json$' THEN
        RETURN false;
    END IF;
    document := convert_from(payload, 'UTF8')::json;
    FOR n IN 1 .. cardinality(wanted) LOOP
        there := document #> keys[coalesce(ends[n - 1], 0) + 1 : ends[n]];
        kind := coalesce(json_typeof(there), 'object');
        IF kind IN ('object', 'array') OR coalesce(there #>> '{}', 'null') <> wanted[n] THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN true;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN false;
END $$;
