-- The title of an error, which errors of one kind share: type and message in one line of up to 200 characters. For a
-- Python traceback it is the line with the exception. For any other text it is the first line, with the next one if the
-- first ends in a colon. Control characters, colours and direction marks are removed. Parts that differ from case to
-- case, such as numbers, ids, addresses and paths, become asterisks. After a change of this function, new failures are
-- in other clusters than old ones.
CREATE OR REPLACE FUNCTION holdfast.error_title(error text) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    said text COLLATE "C" := ltrim(left(error, 8192), E' \t\r\n\f\x0b');
    line text COLLATE "C";
    rest text COLLATE "C";
    kind text COLLATE "C";
BEGIN
    IF position(chr(27) IN said) > 0 THEN
        said := regexp_replace(said, '\x1b\[[0-9;?]*[A-Za-z]', '', 'g');
    END IF;
    IF position(chr(13) IN said) > 0 THEN
        said := replace(replace(said, E'\r\n', E'\n'), E'\r', E'\n');
    END IF;
    IF starts_with(said, 'Traceback (most recent call last)') THEN
        -- After the last frame: a traceback may begin with the one that caused it.
        SELECT l.text INTO line FROM unnest(string_to_array(said, E'\n')) WITH ORDINALITY AS l(text, n)
        WHERE l.text ~ '^[^ \t]' AND l.n > coalesce((
            SELECT max(f.n) FROM unnest(string_to_array(said, E'\n')) WITH ORDINALITY AS f(text, n)
            WHERE f.text LIKE '  File "%'), 1)
        ORDER BY l.n LIMIT 1;
    ELSIF starts_with(said, '+ Exception Group Traceback') THEN
        SELECT regexp_replace(l.text, '^ *[|] ', '') INTO line
        FROM unnest(string_to_array(said, E'\n')) WITH ORDINALITY AS l(text, n)
        WHERE l.text ~ '^ *[|] [A-Za-z_]' ORDER BY l.n LIMIT 1;
    END IF;
    IF line IS NOT NULL THEN
        rest := substr(said, position(line IN said) + length(line));
    ELSE
        line := split_part(said, E'\n', 1);
        rest := ltrim(substr(said, length(line) + 1), E' \t\n\f\x0b');
        IF line ~ ':[ \t]*$' THEN
            line := line || ' ' || split_part(rest, E'\n', 1);
            rest := substr(rest, position(E'\n' IN rest || E'\n'));
        END IF;
    END IF;
    line := btrim(regexp_replace(
        line, '[\u0001-\u0020\u007f-\u00a0\u00ad\u200b-\u200f\u2028-\u202f\u2060-\u2069\ufeff]+',
        ' ', 'g'), ' ');
    IF length(line) > 2000 OR rest ~ '[^ \t\n\f\v]' THEN
        line := left(line, 2000) || chr(1);
    END IF;
    -- The type stays as it is: the digit in urllib3.exceptions.MaxRetryError is part of a name.
    kind := coalesce(
        substring(line FROM '(?x)^ (?: [A-Za-z_$][A-Za-z0-9_$]* (?: [.] | :: | [\\] ) )*
            [A-Za-z_$][A-Za-z0-9_$]* (?: Error|Exception|Warning|Failure|Fault|Exit|Interrupt )
            (?=[ ,;.:]|$|\u0001)'),
        substring(line FROM '(?x)^ (?: [A-Za-z_$][A-Za-z0-9_$]* [.] )+ [A-Z][A-Za-z0-9_$]* (?=[ :]|$|\u0001)'),
        '');
    rest := substr(line, length(kind) + 1);
    -- Parts that differ from case to case, one kind after the other: one pattern for all would take ten times as long.
    -- Looks for ASCII, whatever the database's locale. U+0001 ends a line that was cut.
    -- Quoted text; if it was cut, up to the cut.
    IF rest ~ $p$["'`\u201c\u201e\u00ab\u2018]$p$ THEN
        rest := regexp_replace(rest, $p$(?x)
            [bBrRuUfF]{0,2} " (?: [^"\\] | \\. )* (?: " | \u0001$ ) | " [^"]* "
            | (?<![A-Za-z0-9_]) [bBrRuUfF]{0,2} ' (?: [^'] | '(?=[A-Za-z0-9_]) )* (?: '(?![A-Za-z0-9_]) | \u0001$ )
            | ` [^`]* (?: ` | \u0001$ )
            | \u201c [^\u201d]* (?: \u201d | \u0001$ ) | \u201e [^\u201c\u201d]* (?: [\u201c\u201d] | \u0001$ )
            | \u00ab [^\u00bb]* (?: \u00bb | \u0001$ ) | \u2018 [^\u2019]* \u2019 (?![A-Za-z0-9_])
        $p$, '*', 'g');
    END IF;
    -- URLs.
    IF rest ~ $p$://$p$ THEN
        rest := regexp_replace(
            rest, $p$(?x)[A-Za-z][A-Za-z0-9+.-]* :// [^\s"'<>`]* [^\s"'<>`.,;!?)\u0001]$p$,
            '*', 'g');
    END IF;
    -- E-mail addresses.
    IF rest ~ $p$@$p$ THEN
        rest := regexp_replace(rest, $p$(?x)[A-Za-z0-9._%+-]+ @ [A-Za-z0-9-]+ (?: [.] [A-Za-z0-9-]+ )+$p$, '*', 'g');
    END IF;
    -- Paths.
    IF rest ~ $p$[/\\]$p$ THEN
        rest := regexp_replace(
            rest, $p$(?x)(?<![A-Za-z0-9_.]) (?: ~ | [.]{1,2} | [A-Za-z]: )? [/\\] [^\s"'`<>|,;:()\[\]{}\u0001]+$p$,
            '*', 'g');
    END IF;
    -- Relative paths of files.
    IF rest ~ $p$[/\\].*[.]$p$ THEN
        rest := regexp_replace(
            rest, $p$(?x)(?<![A-Za-z0-9_/]) (?: [A-Za-z0-9_.-]+ [/\\] )+ [A-Za-z0-9_-]+ (?: [.][A-Za-z0-9]{1,8} )+$p$,
            '*', 'g');
    END IF;
    -- Dates.
    IF rest ~ $p$[JFMASOND][aepuco][nbrylgptvc].*[0-9]$p$ THEN
        rest := regexp_replace(rest, $p$(?x)
            (?<![A-Za-z]) (?: (?: Mon|Tue|Wed|Thu|Fri|Sat|Sun )[a-z]*,?[ ] )? (?: [0-9]{1,2}[ -] )?
            (?: Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec )[a-z]*[ .-]+[0-9]{1,4}(?![A-Za-z])
        $p$, '*', 'g');
    END IF;
    -- Times of twelve hours.
    IF rest ~ $p$[0-9] ?[AaPp][Mm]$p$ THEN
        rest := regexp_replace(
            rest, $p$(?x)[0-9]{1,2} (?: :[0-9]{2} ){0,2} [ ]? (?: AM|PM|am|pm )(?![A-Za-z])$p$,
            '*', 'g');
    END IF;
    -- IPv6, MAC and the like.
    IF rest ~ $p$:.*:$p$ THEN
        rest := regexp_replace(rest, $p$(?x)
            (?<![A-Za-z0-9_:]) (?: (?: [0-9A-Fa-f]{0,4} : ){2,8} [0-9A-Fa-f]{1,4} | (?: [0-9A-Fa-f]{0,4} : ){1,7} : )
            (?![A-Za-z0-9_])
        $p$, '*', 'g');
    END IF;
    -- Hashes and ids in hex.
    IF rest ~ $p$[0-9A-Fa-f]{8}$p$ THEN
        rest := regexp_replace(rest, $p$(?x)(?<![A-Za-z0-9_]) [+-]? [0-9A-Fa-f]{8,} (?![A-Za-z0-9_])$p$, '*', 'g');
    END IF;
    -- Base64.
    IF rest ~ $p$[A-Za-z0-9+/_-]{20}$p$ THEN
        rest := regexp_replace(
            rest, $p$(?x)(?<![A-Za-z0-9+/_-]) (?=[A-Za-z+/_-]*[0-9]) [A-Za-z0-9+/_-]{20,}={0,2}$p$,
            '*', 'g');
    END IF;
    -- Numbers, and words that contain a digit.
    IF rest ~ $p$[0-9]$p$ THEN
        rest := regexp_replace(
            rest, $p$(?x)[+-]? (?: [A-Za-z_]+[.-]? )* [0-9] (?: [.+-]?[A-Za-z0-9_] )*$p$,
            '*', 'g');
    END IF;
    -- Lists: those of two and of three items are one kind.
    IF rest ~ $p$[*].*[*]$p$ THEN
        rest := regexp_replace(rest, $p$(?x)[*] (?: []\ ,;:./|&=+\#~(){}<>_[-]* [*] )+$p$, '*', 'g');
    END IF;
    line := left(btrim(replace(kind || rest, chr(1), ''), ' '), 200);
    RETURN CASE WHEN line = '' THEN NULL ELSE line END;
END $$;

-- The cluster of an error: 16 hex digits of a hash of its title. Jobs whose leases ran out have a cluster of their own.
CREATE OR REPLACE FUNCTION holdfast.error_cluster(error text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT left(encode(sha256(convert_to(coalesce(holdfast.error_title(error), ''), 'UTF8')), 'hex'), 16)
$$;
