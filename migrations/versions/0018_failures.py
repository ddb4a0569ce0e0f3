"""What jobs have failed with: the errors of those that are out, by cluster.

Revision ID: 0018
"""

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

# What is blanked in an error's text, so that texts of one kind become one: where a text has what the first pattern
# says, what fits the second. One after the other: all in one, they would take ten times as long. ASCII is looked at,
# whatever the database's locale. U+0001 ends a line that was cut off.
BLANKED = [
    (
        "[\"'`\\u201c\\u201e\\u00ab\\u2018]",  # what is quoted; where that was cut off, up to the cut
        r"""
        [bBrRuUfF]{0,2} " (?: [^"\\] | \\. )* (?: " | \u0001$ ) | " [^"]* "
        | (?<![A-Za-z0-9_]) [bBrRuUfF]{0,2} ' (?: [^'] | '(?=[A-Za-z0-9_]) )* (?: '(?![A-Za-z0-9_]) | \u0001$ )
        | ` [^`]* (?: ` | \u0001$ )
        | \u201c [^\u201d]* (?: \u201d | \u0001$ ) | \u201e [^\u201c\u201d]* (?: [\u201c\u201d] | \u0001$ )
        | \u00ab [^\u00bb]* (?: \u00bb | \u0001$ ) | \u2018 [^\u2019]* \u2019 (?![A-Za-z0-9_])
        """,
    ),
    ("://", r"""[A-Za-z][A-Za-z0-9+.-]* :// [^\s"'<>`]* [^\s"'<>`.,;!?)\u0001]"""),
    ("@", "[A-Za-z0-9._%+-]+ @ [A-Za-z0-9-]+ (?: [.] [A-Za-z0-9-]+ )+"),
    (
        r"[/\\]",  # paths; without a root, of files
        r"""(?<![A-Za-z0-9_.]) (?: ~ | [.]{1,2} | [A-Za-z]: )? [/\\] [^\s"'`<>|,;:()\[\]{}\u0001]+""",
    ),
    (
        r"[/\\].*[.]",
        r"(?<![A-Za-z0-9_/]) (?: [A-Za-z0-9_.-]+ [/\\] )+ [A-Za-z0-9_-]+ (?: [.][A-Za-z0-9]{1,8} )+",
    ),
    (
        "[JFMASOND][aepuco][nbrylgptvc].*[0-9]",  # dates
        """
        (?<![A-Za-z]) (?: (?: Mon|Tue|Wed|Thu|Fri|Sat|Sun )[a-z]*,?[ ] )? (?: [0-9]{1,2}[ -] )?
        (?: Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec )[a-z]*[ .-]+[0-9]{1,4}(?![A-Za-z])
        """,
    ),
    ("[0-9] ?[AaPp][Mm]", "[0-9]{1,2} (?: :[0-9]{2} ){0,2} [ ]? (?: AM|PM|am|pm )(?![A-Za-z])"),
    (
        ":.*:",  # IPv6, MAC and the like
        """
        (?<![A-Za-z0-9_:]) (?: (?: [0-9A-Fa-f]{0,4} : ){2,8} [0-9A-Fa-f]{1,4} | (?: [0-9A-Fa-f]{0,4} : ){1,7} : )
        (?![A-Za-z0-9_])
        """,
    ),
    ("[0-9A-Fa-f]{8}", "(?<![A-Za-z0-9_]) [+-]? [0-9A-Fa-f]{8,} (?![A-Za-z0-9_])"),
    (
        "[A-Za-z0-9+/_-]{20}",  # base64
        "(?<![A-Za-z0-9+/_-]) (?=[A-Za-z+/_-]*[0-9]) [A-Za-z0-9+/_-]{20,}={0,2}",
    ),
    ("[0-9]", "[+-]? (?: [A-Za-z_]+[.-]? )* [0-9] (?: [.+-]?[A-Za-z0-9_] )*"),  # numbers, and words that have a digit
    # However many there are of them: lists of two and of three are one kind.
    ("[*].*[*]", r"[*] (?: []\ ,;:./|&=+\#~(){}<>_[-]* [*] )+"),
]
BLANK = "\n".join(
    f"        IF rest ~ $p${hint}$p$ THEN rest := regexp_replace(rest, $p$(?x){pattern}$p$, '*', 'g'); END IF;"
    for hint, pattern in BLANKED
)

# As in 0010.
PUT_PENDING = """
    CREATE OR REPLACE FUNCTION holdfast.put_pending(job holdfast.jobs) RETURNS boolean
    LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO holdfast.jobs VALUES (job.*)
        ON CONFLICT (topic, tenant, key)
            WHERE key IS NOT NULL AND original_topic IS NULL AND state IN ('ready', 'scheduled', 'blocked')
        DO NOTHING;
        RETURN FOUND;
    END $$
"""

UP = [
    # Set for jobs that are out, and for no others: where and when their last delivery ended, and the cluster of their
    # error's text.
    """
    ALTER TABLE holdfast.jobs ADD COLUMN cluster text COLLATE "C", ADD COLUMN failed_in text COLLATE "C",
        ADD COLUMN failed_at timestamptz
    """,
    # Each cluster of each source is a run in it, by time, which is counted without a look at the jobs.
    """
    CREATE INDEX jobs_failures ON holdfast.jobs (topic, failed_in, cluster, failed_at, seq)
        INCLUDE (deliveries, original_deliveries) WHERE cluster IS NOT NULL
    """,
    # Who puts a job back as a pending one, such as a requeue, takes it out of its cluster.
    PUT_PENDING.replace("BEGIN", "BEGIN job.cluster := NULL; job.failed_in := NULL; job.failed_at := NULL;"),
    # What errors of one kind have in common: type and message, one line of up to 200 characters. Of a Python traceback,
    # the line that names the exception; of any other text its first, and the next as well where that one ends in a
    # colon. Control characters, colours and what turns the direction of a text are left out.
    """
    CREATE FUNCTION holdfast.error_title(error text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $function$
    DECLARE
        said text COLLATE "C" := ltrim(left(error, 8192), E' \\t\\r\\n\\f\\x0b');
        line text COLLATE "C";
        rest text COLLATE "C";
        kind text COLLATE "C";
    BEGIN
        IF position(chr(27) IN said) > 0 THEN
            said := regexp_replace(said, '\\x1b\\[[0-9;?]*[A-Za-z]', '', 'g');
        END IF;
        IF position(chr(13) IN said) > 0 THEN
            said := replace(replace(said, E'\\r\\n', E'\\n'), E'\\r', E'\\n');
        END IF;
        IF starts_with(said, 'Traceback (most recent call last)') THEN
            -- Behind the last frame: a traceback that caused another one comes before it.
            SELECT l.text INTO line FROM unnest(string_to_array(said, E'\\n')) WITH ORDINALITY AS l(text, n)
            WHERE l.text ~ '^[^ \\t]' AND l.n > coalesce((
                SELECT max(f.n) FROM unnest(string_to_array(said, E'\\n')) WITH ORDINALITY AS f(text, n)
                WHERE f.text LIKE '  File "%'), 1)
            ORDER BY l.n LIMIT 1;
        ELSIF starts_with(said, '+ Exception Group Traceback') THEN
            SELECT regexp_replace(l.text, '^ *[|] ', '') INTO line
            FROM unnest(string_to_array(said, E'\\n')) WITH ORDINALITY AS l(text, n)
            WHERE l.text ~ '^ *[|] [A-Za-z_]' ORDER BY l.n LIMIT 1;
        END IF;
        IF line IS NOT NULL THEN
            rest := substr(said, position(line IN said) + length(line));
        ELSE
            line := split_part(said, E'\\n', 1);
            rest := ltrim(substr(said, length(line) + 1), E' \\t\\n\\f\\x0b');
            IF line ~ ':[ \\t]*$' THEN
                line := line || ' ' || split_part(rest, E'\\n', 1);
                rest := substr(rest, position(E'\\n' IN rest || E'\\n'));
            END IF;
        END IF;
        line := btrim(regexp_replace(
            line, '[\\u0001-\\u0020\\u007f-\\u00a0\\u00ad\\u200b-\\u200f\\u2028-\\u202f\\u2060-\\u2069\\ufeff]+',
            ' ', 'g'), ' ');
        IF length(line) > 2000 OR rest ~ '[^ \\t\\n\\f\\v]' THEN
            line := left(line, 2000) || chr(1);
        END IF;
        -- The type stays as it is: the digit in urllib3.exceptions.MaxRetryError is no number.
        kind := coalesce(
            substring(line FROM '(?x)^ (?: [A-Za-z_$][A-Za-z0-9_$]* (?: [.] | :: | [\\\\] ) )*
                [A-Za-z_$][A-Za-z0-9_$]* (?: Error|Exception|Warning|Failure|Fault|Exit|Interrupt )
                (?=[ ,;.:]|$|\\u0001)'),
            substring(line FROM '(?x)^ (?: [A-Za-z_$][A-Za-z0-9_$]* [.] )+ [A-Z][A-Za-z0-9_$]* (?=[ :]|$|\\u0001)'),
            '');
        rest := substr(line, length(kind) + 1);
BLANK
        line := left(btrim(replace(kind || rest, chr(1), ''), ' '), 200);
        RETURN CASE WHEN line = '' THEN NULL ELSE line END;
    END $function$
    """.replace("BLANK", BLANK),
    # 16 hex digits; jobs whose leases ended without a word have one of their own.
    """
    CREATE FUNCTION holdfast.error_cluster(error text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
        SELECT left(encode(sha256(convert_to(coalesce(holdfast.error_title(error), ''), 'UTF8')), 'hex'), 16)
    $$
    """,
]

DOWN = [
    PUT_PENDING,
    "DROP FUNCTION holdfast.error_cluster(text)",
    "DROP FUNCTION holdfast.error_title(text)",
    "DROP INDEX holdfast.jobs_failures",
    "ALTER TABLE holdfast.jobs DROP COLUMN cluster, DROP COLUMN failed_in, DROP COLUMN failed_at",
]


def upgrade() -> None:
    connection = op.get_bind()
    for statement in UP:
        connection.exec_driver_sql(statement)  # as it stands: a colon in a pattern is no parameter


def downgrade() -> None:
    for statement in DOWN:
        op.execute(statement)
