-- The tables, by purpose. deploy/citus/README.md lists them by how their rows could be distributed.
--
-- In tables with many writes, columns of fixed length come first, the longest first, so that rows have no alignment gaps.
-- Columns added later are at the end. Names have the collation "C": they are compared as bytes, so every machine has the
-- same order.
--
-- Tables with short-lived rows have their own autovacuum settings. The default waits until 20% of a table is dead, which is
-- far too late for a small table with constant writes.


-- Topics -------------------------------------------------------------------------------------------------------------

-- A topic's configuration. A setting that is NULL follows the service's default (holdfast.defaults).
CREATE TABLE holdfast.topics (
    name text COLLATE "C" PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$'),
    id integer GENERATED ALWAYS AS IDENTITY UNIQUE,
    type holdfast.topic_type NOT NULL,
    durability holdfast.durability NOT NULL DEFAULT 'disk',
    lease_ms integer DEFAULT 30000 CHECK (lease_ms BETWEEN 100 AND 86400000),
    claim_jitter_ms integer NOT NULL DEFAULT 0 CHECK (claim_jitter_ms BETWEEN 0 AND 5000),
    max_deliveries integer DEFAULT 0 CHECK (max_deliveries BETWEEN 0 AND 10000),  -- NULL: the next two columns decide
    on_exhausted holdfast.exhaustion NOT NULL DEFAULT 'redeliver',
    dead_letter text COLLATE "C" CHECK (dead_letter <> name),
    ttl_ms bigint DEFAULT 0 CHECK (ttl_ms BETWEEN 0 AND 315360000000),
    cap_records bigint NOT NULL DEFAULT 0 CHECK (cap_records >= 0),
    cap_bytes bigint NOT NULL DEFAULT 0 CHECK (cap_bytes >= 0),
    discard holdfast.discard NOT NULL DEFAULT 'old',
    idempotency_window_ms bigint NOT NULL DEFAULT 120000 CHECK (idempotency_window_ms BETWEEN 0 AND 604800000),
    priority integer,
    auto_priority boolean NOT NULL DEFAULT true,
    auto_create boolean NOT NULL DEFAULT true,
    dedupe_node boolean NOT NULL DEFAULT true,
    leases_durable boolean NOT NULL DEFAULT true,  -- always: leases survive a restart
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    version bigint NOT NULL DEFAULT 1,  -- counts changes, so that a cache never replaces a newer row with an older one
    max_retries integer CHECK (max_retries BETWEEN 0 AND 10000),
    dlq_threshold integer CHECK (dlq_threshold BETWEEN 0 AND 10000),
    max_depth bigint NOT NULL DEFAULT 0 CHECK (max_depth >= 0),
    throughput_limit integer NOT NULL DEFAULT 0 CHECK (throughput_limit >= 0),
    replayable boolean NOT NULL DEFAULT false,
    replay_window_ms bigint NOT NULL DEFAULT 604800000 CHECK (replay_window_ms BETWEEN 0 AND 315360000000),
    configured boolean NOT NULL DEFAULT true,  -- false: created by its first use, with default settings
    schema_version integer CHECK (schema_version > 0),  -- of the schema that payloads must match; NULL: no schema
    priority_order text COLLATE "C" NOT NULL DEFAULT 'highest_first'
        CHECK (priority_order IN ('highest_first', 'lowest_first')),
    retry_order text COLLATE "C" NOT NULL DEFAULT 'front' CHECK (retry_order IN ('front', 'back')),
    aging_ms bigint NOT NULL DEFAULT 0 CHECK (aging_ms BETWEEN 0 AND 315360000000),
    tenant_weights jsonb NOT NULL DEFAULT '{}',
    tenant_limits jsonb NOT NULL DEFAULT '{}',
    dedupe_window_ms bigint NOT NULL DEFAULT 300000 CHECK (dedupe_window_ms BETWEEN 0 AND 604800000),
    backoff json,  -- {kind, base_ms, cap_ms, jitter}; NULL: none
    dead_ttl_ms bigint NOT NULL DEFAULT 1209600000 CHECK (dead_ttl_ms BETWEEN 0 AND 315360000000),  -- 0: forever
    paused boolean NOT NULL DEFAULT false,
    paused_tenants text[] NOT NULL DEFAULT '{}',
    draining boolean NOT NULL DEFAULT false,
    result_ttl_ms bigint NOT NULL DEFAULT 86400000 CHECK (result_ttl_ms BETWEEN 0 AND 315360000000),
    webhook json,  -- {url, on, secret}, where secret is a mask; NULL: none
    accepts text[] NOT NULL DEFAULT
        '{application/json,application/x-www-form-urlencoded,multipart/form-data,text/plain}'
        CHECK (cardinality(accepts) BETWEEN 1 AND 32),
    ingest text NOT NULL DEFAULT 'key' CHECK (ingest IN ('key', 'public')),
    user_events boolean NOT NULL DEFAULT false,
    drained_at timestamptz,
    event_ttl_ms bigint NOT NULL DEFAULT 604800000 CHECK (event_ttl_ms BETWEEN 0 AND 315360000000),  -- 0: forever
    wait_goal_ms bigint NOT NULL DEFAULT 60000 CHECK (wait_goal_ms BETWEEN 0 AND 315360000000)  -- 0: never late
);

-- The service's default settings, for the functions that SQL users call. Each process updates the row when it starts.
CREATE TABLE holdfast.defaults (
    ttl_ms bigint NOT NULL DEFAULT 86400000,
    max_retries integer NOT NULL DEFAULT 3,
    dlq_threshold integer NOT NULL DEFAULT 3,
    one_row boolean PRIMARY KEY DEFAULT true CHECK (one_row)
);

-- Schemas that payloads of a topic must match. After a schema is removed, the row stays without one. So a topic's schema
-- versions are never reused, and a process can keep a compiled version forever.
CREATE TABLE holdfast.topic_schemas (
    topic_id integer PRIMARY KEY,
    version integer NOT NULL DEFAULT 1 CHECK (version > 0),
    format text CHECK (format IN ('json_schema', 'avro')),
    schema text CHECK (octet_length(schema) <= 262144),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((schema IS NULL) = (format IS NULL))
);

-- When a topic was last read and written; NULL means never. A separate table, because these values change every few
-- seconds, and changes of topics' rows invalidate caches.
CREATE TABLE holdfast.topic_reads (
    topic_id integer PRIMARY KEY,
    read_at timestamptz,
    written_at timestamptz
) WITH (fillfactor = 50);

-- Secrets that sign webhook deliveries. A separate table, so that copies of a topic's configuration don't include them.
CREATE TABLE holdfast.webhook_secrets (
    topic_id integer PRIMARY KEY,
    secret text NOT NULL
);


-- Jobs ---------------------------------------------------------------------------------------------------------------

-- Jobs that wait, are leased, failed or expired, and dead letters. Completed jobs are deleted. Every verb updates an
-- indexed column, so no update is heap-only: free space in a page only keeps a job's new version near the old one.
CREATE TABLE holdfast.jobs (
    seq bigint NOT NULL,
    position bigint NOT NULL,  -- in the ready lane; always new, drawn in the transaction that makes the job ready (ADR 0012)
    visible_at timestamptz NOT NULL,  -- for a leased job, the end of its lease
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    expires_at timestamptz,
    original_seq bigint,
    dlq_moved_at timestamptz,
    topic_id integer NOT NULL,
    deliveries integer NOT NULL DEFAULT 0 CHECK (deliveries >= 0),
    max_deliveries integer CHECK (max_deliveries BETWEEN 0 AND 10000),
    original_deliveries integer,
    state holdfast.job_state NOT NULL,
    priority smallint NOT NULL DEFAULT 0,
    lease_id uuid,  -- the fence: every later verb of the lease's holder compares it
    topic text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL DEFAULT '',
    node text,
    tag text,
    producer text,
    last_error text,
    original_topic text COLLATE "C",  -- a dead letter's original topic; NULL: not a dead letter
    metadata json,
    payload bytea NOT NULL,
    leased_at timestamptz,  -- so that an ack knows the job's duration without reading the ledger
    content_type text,  -- NULL: application/json
    first_topic_id integer,  -- with first_seq, the id of a dead letter's original job. NULL: this is the original job
    first_seq bigint,
    key text COLLATE "C" CONSTRAINT jobs_key_check CHECK (char_length(key) BETWEEN 1 AND 256),
    original_tenant text COLLATE "C",  -- a dead letter gets its new topic's settings; from here on, those it had before
    original_max_deliveries integer,
    ttl_ms bigint,  -- the original time to live, 0: none; set once created_at no longer gives it
    cluster text COLLATE "C",  -- of a job that failed for good: its error's cluster, and in the next two, where and when it failed
    failed_in text COLLATE "C",
    failed_at timestamptz,
    grp text COLLATE "C" CONSTRAINT jobs_grp_check CHECK (char_length(grp) BETWEEN 1 AND 128),
    crashes integer NOT NULL DEFAULT 0,  -- deliveries whose lease expired
    refunds smallint NOT NULL DEFAULT 0,  -- deliveries that were refunded
    original_crashes integer,
    cancelled_at timestamptz,  -- cancelled while its lease was valid: the job counts as expired from then on
    progress smallint,  -- last reported by the holder of progress_lease; ignored for any other lease
    progress_note text,
    progress_at timestamptz,
    progress_lease uuid,
    webhook text CONSTRAINT jobs_webhook_check CHECK (octet_length(webhook) BETWEEN 1 AND 2048),
    left_grp text COLLATE "C",  -- the group that the job left at cancelled_at; grp is NULL then
    PRIMARY KEY (topic, seq),
    CHECK ((state = 'leased') = (lease_id IS NOT NULL)),
    CHECK ((state = 'leased') = (node IS NOT NULL))
) WITH (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);
-- Compression costs more than it saves for values that are read once.
ALTER TABLE holdfast.jobs ALTER COLUMN payload SET STORAGE EXTERNAL;

-- A topic's lanes: each tenant and priority that has had jobs.
CREATE TABLE holdfast.lanes (
    topic text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL DEFAULT '',
    priority smallint NOT NULL DEFAULT 0,
    PRIMARY KEY (topic, tenant, priority)
);

-- New lanes of an SQL user's open transaction. They are added at its commit. Adding them earlier would block others who
-- add the same lanes until the transaction ends.
CREATE TABLE holdfast.new_lanes (
    tx xid8 NOT NULL DEFAULT pg_current_xact_id(),
    priority smallint NOT NULL,
    topic text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Counts of a topic's jobs: the sums of its rows. Each statement that moves jobs adds one row with its changes, and rows
-- are never updated, so no statement waits for another. Now and then the rows are folded into one. Dead rows have lower ids
-- than those that are read. ttl_lost_to, cap_lost_to: up to which seq jobs were lost. NULL: none. The highest counts.
CREATE TABLE holdfast.tallies (
    id bigint GENERATED ALWAYS AS IDENTITY,
    ready bigint NOT NULL DEFAULT 0,
    scheduled bigint NOT NULL DEFAULT 0,
    blocked bigint NOT NULL DEFAULT 0,
    leased bigint NOT NULL DEFAULT 0,
    dead_lettered bigint NOT NULL DEFAULT 0,
    bytes bigint NOT NULL DEFAULT 0,
    topic_id integer NOT NULL,
    failed bigint NOT NULL DEFAULT 0,
    expired bigint NOT NULL DEFAULT 0,
    ttl_lost_to bigint,
    cap_lost_to bigint,
    PRIMARY KEY (topic_id, id)
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_threshold = -1,
    autovacuum_vacuum_cost_delay = 0
);

-- Groups with live jobs. Adding a job to a group, and releasing its next job, lock its row until commit (ADR 0033).
CREATE TABLE holdfast.groups (
    topic_id integer NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    grp text COLLATE "C" NOT NULL,
    fresh boolean NOT NULL,  -- only the transaction that created the row has added jobs
    PRIMARY KEY (topic_id, tenant, grp)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0
);

-- Groups whose current job is gone. The transaction that removes the job writes the row, which needs no lock. `promote`
-- reads it. A group may have more than one row.
CREATE TABLE holdfast.freed_groups (
    id bigint GENERATED ALWAYS AS IDENTITY,
    topic_id integer NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    grp text COLLATE "C" NOT NULL,
    PRIMARY KEY (topic_id, id)
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_threshold = -1,
    autovacuum_vacuum_cost_delay = 0
);

-- Dedupe ids of jobs. Keyed by the topic's id, because a recreated topic of the same name starts without them. The enqueue
-- that claims a row writes it twice, the second time into the same page, so that no index has to be written.
CREATE TABLE holdfast.dedupe (
    topic_id integer NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    grp text COLLATE "C" NOT NULL,
    dedupe_id text COLLATE "C" NOT NULL CHECK (char_length(dedupe_id) BETWEEN 1 AND 256),
    seq bigint NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (topic_id, tenant, grp, dedupe_id)
) WITH (fillfactor = 50);

-- Idempotency keys of batches for queues and logs. seqs: NULL if contiguous. head_seq: for a queue's batch, so that a
-- repeated batch gets the head of the first answer; NULL for a log's, where the last seq is the head.
CREATE TABLE holdfast.idempotency (
    expires_at timestamptz NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    topic_id integer NOT NULL,
    topic text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    seqs bigint[],
    head_seq bigint,
    PRIMARY KEY (topic, key)
);

-- Token buckets of topics with a throughput_limit (jobs per second that can be claimed), used without Redis. `at`: when
-- the tokens were last counted. Unlogged: every bucket is reset after a crash.
CREATE UNLOGGED TABLE holdfast.buckets (
    at timestamptz NOT NULL,
    tokens double precision NOT NULL CHECK (tokens >= 0),
    topic_id integer PRIMARY KEY,
    granted integer NOT NULL
) WITH (
    fillfactor = 20,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- Schedules, which create jobs by a cron expression. next_fire: the next time to create one for; NULL while paused. due_at:
-- when to try, which is later than next_fire after a refusal. last_fire: the time that the last job was created for.
-- payload and fields: the job, as in the record that was given.
CREATE TABLE holdfast.schedules (
    name text COLLATE "C" PRIMARY KEY,
    topic text COLLATE "C" NOT NULL,
    cron text NOT NULL,
    time_zone text NOT NULL,
    missed text NOT NULL CHECK (missed IN ('skip', 'once', 'all')),
    paused boolean NOT NULL,
    next_fire timestamptz,
    due_at timestamptz,
    last_fire timestamptz,
    last_seq bigint,
    fires bigint NOT NULL DEFAULT 0,
    error_code text,
    error_text text,
    error_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    payload bytea NOT NULL,
    fields json NOT NULL,
    CHECK ((next_fire IS NULL) = (due_at IS NULL) AND (next_fire IS NULL OR NOT paused)),
    CHECK ((error_code IS NULL) = (error_text IS NULL) AND (error_code IS NULL) = (error_at IS NULL))
) WITH (
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- Requeues and cancels of many jobs. A requeue has `filter`, a cancel `cancels`. state: canary (waiting for the outcome of
-- the first jobs), running, done, cancelled, stopped, failed. stage and after_*: the progress. The process that runs it
-- updates heartbeat_at; if it stops, another process continues.
CREATE TABLE holdfast.operations (
    started_at timestamptz NOT NULL,
    until_time timestamptz NOT NULL,
    heartbeat_at timestamptz NOT NULL,
    after_time timestamptz NOT NULL DEFAULT 'epoch',
    canary_until timestamptz,
    ended_at timestamptz,
    after_seq bigint NOT NULL DEFAULT 0,
    matched bigint NOT NULL,
    requeued bigint NOT NULL DEFAULT 0 CHECK (requeued >= 0),
    skipped bigint NOT NULL DEFAULT 0 CHECK (skipped >= 0),
    topic_id integer NOT NULL,
    dead_id integer,
    rate integer NOT NULL CHECK (rate >= 0),
    failed_again integer NOT NULL DEFAULT 0,
    stage smallint NOT NULL DEFAULT 0,
    matched_exact boolean NOT NULL,
    cancelled boolean NOT NULL DEFAULT false,
    id uuid PRIMARY KEY,
    owner uuid NOT NULL,
    topic text COLLATE "C" NOT NULL,
    dead_topic text COLLATE "C",
    state text NOT NULL,
    reason text,
    seqs bigint[],
    starts text[] COLLATE "C" NOT NULL,
    filter json,
    canary json,
    canary_jobs json NOT NULL DEFAULT '[]',
    actor text NOT NULL,
    actor_name text,
    address text,
    cancels json,
    gone bigint NOT NULL DEFAULT 0 CHECK (gone >= 0),
    marked bigint NOT NULL DEFAULT 0 CHECK (marked >= 0),
    CHECK ((dead_topic IS NULL) = (dead_id IS NULL)),
    CHECK ((ended_at IS NULL) = (state IN ('canary', 'running'))),
    CONSTRAINT operations_kind CHECK ((filter IS NULL) <> (cancels IS NULL))
) WITH (fillfactor = 50);

-- A statement that ends a job writes the ending here if a webhook may be interested. No row stays: the trigger `tell`
-- turns it into a delivery or drops it (ADR 0041).
CREATE TABLE holdfast.endings (
    topic text COLLATE "C" NOT NULL,
    topic_id integer NOT NULL,
    seq bigint NOT NULL,
    event text NOT NULL,
    deliveries integer NOT NULL,
    error text,
    about json NOT NULL
);


-- By day: the ledger, results and the archive. The service adds partitions in advance, drops old ones ------------------

-- The events of jobs. Every verb writes to it, so its only index is a BRIN. until: the new deadline, or when the job
-- becomes claimable. began_at: the start of the period that the event ends: for a claim, when the job became claimable; for
-- an ack or nack, when it was claimed. tenant: NULL is the default tenant. grp and max_deliveries: for events that add a
-- job. So even after jobs are gone, the ledger shows how long everything took, and whether groups' order and limits were
-- kept (ADR 0038). NULLs take no space.
CREATE TABLE holdfast.lease_events (
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    tx xid8 NOT NULL DEFAULT pg_current_xact_id(),
    seq bigint NOT NULL,
    until timestamptz,
    topic_id integer NOT NULL,
    deliveries integer NOT NULL,
    event holdfast.job_event NOT NULL,
    lease_id uuid,
    topic text COLLATE "C" NOT NULL,
    node text,
    detail text,
    began_at timestamptz,
    tenant text COLLATE "C",
    grp text COLLATE "C",
    max_deliveries integer
) PARTITION BY RANGE (at);

-- Results that workers send with an ack. expires_at NULL: forever.
CREATE TABLE holdfast.results (
    completed_at timestamptz NOT NULL,
    expires_at timestamptz,
    seq bigint NOT NULL,
    first_seq bigint,
    topic_id integer NOT NULL,
    first_topic_id integer,
    deliveries integer NOT NULL,
    lease_id uuid NOT NULL,
    topic text COLLATE "C" NOT NULL,
    node text,
    result json NOT NULL
) PARTITION BY RANGE (completed_at);
ALTER TABLE holdfast.results ALTER COLUMN result SET STORAGE EXTERNAL;

-- Completed jobs of replayable topics.
CREATE TABLE holdfast.archive (
    finished_at timestamptz NOT NULL,
    seq bigint NOT NULL,
    created_at timestamptz NOT NULL,
    original_seq bigint,
    first_seq bigint,
    topic_id integer NOT NULL,
    first_topic_id integer,
    deliveries integer NOT NULL,
    max_deliveries integer,
    outcome holdfast.outcome NOT NULL,
    priority smallint NOT NULL,
    topic text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    key text COLLATE "C",
    node text,
    tag text,
    producer text,
    content_type text,
    last_error text,
    original_topic text COLLATE "C",
    metadata json,
    payload bytea NOT NULL,
    grp text COLLATE "C"  -- a replay adds the job to its group again
) PARTITION BY RANGE (finished_at);
ALTER TABLE holdfast.archive ALTER COLUMN payload SET STORAGE EXTERNAL;

-- Days that are also kept as files. A row is written after the day's files were read back and match the table by count and
-- checksum. It outlives the partition.
CREATE TABLE holdfast.archived_days (
    of_table text COLLATE "C" NOT NULL CHECK (of_table IN ('lease_events', 'results', 'archive')),
    day date NOT NULL,
    rows bigint NOT NULL CHECK (rows >= 0),
    checksum numeric NOT NULL,
    location text NOT NULL,
    verified_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (of_table, day)
);

-- Requested replays of the archive: their bounds and progress. asked_from: '-infinity' for the whole window.
CREATE TABLE holdfast.replays (
    asked_from timestamptz NOT NULL,
    from_time timestamptz NOT NULL,
    until_time timestamptz NOT NULL,
    after_time timestamptz NOT NULL,
    after_seq bigint NOT NULL,
    enqueued bigint NOT NULL DEFAULT 0 CHECK (enqueued >= 0),
    skipped bigint NOT NULL DEFAULT 0 CHECK (skipped >= 0),
    updated_at timestamptz NOT NULL,
    topic_id integer NOT NULL,
    done boolean NOT NULL DEFAULT false,
    topic text COLLATE "C" NOT NULL,
    PRIMARY KEY (topic, topic_id, asked_from)
) WITH (fillfactor = 50);


-- Log topics ---------------------------------------------------------------------------------------------------------

CREATE TABLE holdfast.records (
    seq bigint NOT NULL,
    created_at timestamptz NOT NULL,
    topic_id integer NOT NULL,
    topic text COLLATE "C" NOT NULL,
    tag text COLLATE "C",
    node text,
    metadata json,
    payload bytea NOT NULL,
    PRIMARY KEY (topic, seq)
) WITH (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE holdfast.records ALTER COLUMN payload SET STORAGE EXTERNAL;

-- The extent of each log. Rows are never updated: each change inserts the next version and deletes the previous one. Reads
-- find the newest at the end of the index. So they never scan dead versions that an old snapshot keeps from being
-- removed.
CREATE TABLE holdfast.log_state (
    version bigint NOT NULL,
    head_seq bigint NOT NULL DEFAULT 0,
    earliest_seq bigint NOT NULL DEFAULT 1,
    count bigint NOT NULL DEFAULT 0 CHECK (count >= 0),
    bytes bigint NOT NULL DEFAULT 0 CHECK (bytes >= 0),
    cap_lost_to bigint NOT NULL DEFAULT 0,
    ttl_lost_to bigint NOT NULL DEFAULT 0,
    written_at timestamptz,
    topic_id integer NOT NULL,
    topic text COLLATE "C" NOT NULL,
    PRIMARY KEY (topic, topic_id, version),
    CHECK (earliest_seq BETWEEN 1 AND head_seq + 1)
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- Clients' watches over server-sent events and their progress, on whatever process the client is connected to. holder: the
-- connection that serves the watch, replaced by each new connection; NULL before the first. places: {topic: [topic id, seq,
-- whether the client chose the seq]}. expires_at changes rarely, so that saving places stays a HOT update.
CREATE TABLE holdfast.watches (
    expires_at timestamptz NOT NULL,
    holder uuid,
    wid text COLLATE "C" PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    options json NOT NULL,
    places json NOT NULL
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);

-- Events that jobs send to end users. A user's ids ascend in commit order: see send_user_events.sql. Rows live for minutes.
CREATE TABLE holdfast.user_events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    user_id text COLLATE "C" NOT NULL,
    event text NOT NULL,
    data text NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);


-- Tables that SQL users write: docs/sql.md -----------------------------------------------------------------------------

-- Rows inserted here become jobs in the same statement: take_inbox. SQL users see the constraints' names as error messages.
-- checked: the version of the topic's schema that the payload matches, set by the service. UNLOGGED loses nothing, because
-- rows exist only during a statement.
CREATE UNLOGGED TABLE holdfast.inbox (
    topic text COLLATE "C" NOT NULL,
    payload bytea,
    payload_text text,
    content_type text,
    metadata text,
    tag text,
    node text,
    priority integer,
    delay_ms bigint,
    run_at timestamptz,
    ttl_ms bigint,
    max_deliveries integer,
    key text COLLATE "C",
    checked integer,
    place bigint GENERATED ALWAYS AS IDENTITY,
    tenant text COLLATE "C",
    "group" text COLLATE "C",
    dedupe_id text COLLATE "C",
    user_id text,
    webhook text,
    CONSTRAINT "topic: names that end in .dlq are kept for dead letters" CHECK (topic NOT LIKE '%.dlq'),
    CONSTRAINT "topic: holdfast. is kept for the service's own" CHECK (topic NOT LIKE 'holdfast.%'),
    CONSTRAINT "topic: names that end in .fifo ask for a group" CHECK (topic NOT LIKE '%.fifo' OR "group" IS NOT NULL),
    CONSTRAINT "payload or payload_text: one of them" CHECK (num_nonnulls(payload, payload_text) = 1),
    CONSTRAINT "payload and metadata: 1 MiB at most" CHECK (
        coalesce(octet_length(payload), octet_length(payload_text)) + coalesce(octet_length(metadata), 0) <= 1048576),
    CONSTRAINT "metadata: 16 KiB at most" CHECK (octet_length(metadata) <= 16384),
    CONSTRAINT "content_type: type/subtype, of up to 255 characters" CHECK (
        content_type ~ '^[!#$&^_.+A-Za-z0-9-]+/[!#$&^_.+A-Za-z0-9-]+( *;[ -~]*)?$' AND length(content_type) < 256),
    CONSTRAINT "tag: 256 bytes at most" CHECK (octet_length(tag) <= 256),
    CONSTRAINT "node: 128 bytes at most" CHECK (octet_length(node) <= 128),
    CONSTRAINT "priority: 0 to 9" CHECK (priority BETWEEN 0 AND 9),
    CONSTRAINT "delay_ms: 0 to 315360000000, ten years" CHECK (delay_ms BETWEEN 0 AND 315360000000),
    CONSTRAINT "run_at: a time of these millennia" CHECK (
        run_at < '10000-01-01 00:00:00+00' AND run_at > '-infinity'),
    CONSTRAINT "ttl_ms: 0 to 315360000000, ten years" CHECK (ttl_ms BETWEEN 0 AND 315360000000),
    CONSTRAINT "max_deliveries: 0 to 10000" CHECK (max_deliveries BETWEEN 0 AND 10000),
    CONSTRAINT "key: 1 to 256 characters" CHECK (char_length(key) BETWEEN 1 AND 256),
    CONSTRAINT "tenant: 128 characters at most" CHECK (char_length(tenant) <= 128),
    CONSTRAINT "group: 1 to 128 characters" CHECK (char_length("group") BETWEEN 1 AND 128),
    CONSTRAINT "dedupe_id: 1 to 256 characters" CHECK (char_length(dedupe_id) BETWEEN 1 AND 256),
    CONSTRAINT "user_id: 1 to 128 characters" CHECK (char_length(user_id) BETWEEN 1 AND 128),
    -- Like app/kernel/topics/webhooks.py: no user, password or fragment.
    CONSTRAINT "webhook: an http:// or https:// URL of up to 2048 characters" CHECK (
        webhook ~* '^https?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&*+,;=%-]+)(:[1-9][0-9]{0,4})?([/?][!-"$-~]*)?$'
        AND octet_length(webhook) <= 2048)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Rows for topics with a schema, until the service has checked them.
CREATE TABLE holdfast.inbox_unchecked (
    id bigint GENERATED ALWAYS AS IDENTITY,
    run_at timestamptz,
    delay_ms bigint,
    ttl_ms bigint,
    inserted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    priority integer,
    max_deliveries integer,
    topic text COLLATE "C" NOT NULL,
    content_type text,
    metadata text,
    tag text,
    node text,
    key text COLLATE "C",
    payload bytea NOT NULL,
    tenant text COLLATE "C",
    "group" text COLLATE "C",
    dedupe_id text COLLATE "C",
    user_id text,
    webhook text,
    PRIMARY KEY (topic, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Rejected rows with the reason. Kept for 14 days.
CREATE TABLE holdfast.inbox_rejects (
    rejected_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    inserted_at timestamptz NOT NULL,
    run_at timestamptz,
    delay_ms bigint,
    ttl_ms bigint,
    priority integer,
    max_deliveries integer,
    topic text COLLATE "C" NOT NULL,
    content_type text,
    metadata text,
    tag text,
    node text,
    key text COLLATE "C",
    payload bytea NOT NULL,
    reason text NOT NULL,
    tenant text COLLATE "C",
    "group" text COLLATE "C",
    dedupe_id text COLLATE "C",
    user_id text,
    webhook text
);

-- Staged writes: several connections stage jobs, and one transaction enqueues them. A row here is one attempt of one task.
-- Logged, so that its numbers are never reused.
CREATE TABLE holdfast.stages (
    attempt bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    run text COLLATE "C" NOT NULL,
    CONSTRAINT "run: 1 to 256 characters" CHECK (char_length(run) BETWEEN 1 AND 256)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Staged jobs, with the inbox's constraints. A crash of PostgreSQL empties the table, which the commit detects.
CREATE UNLOGGED TABLE holdfast.staged (
    LIKE holdfast.inbox INCLUDING CONSTRAINTS INCLUDING STORAGE,
    attempt bigint NOT NULL,
    PRIMARY KEY (attempt, place)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Committed writes; for a stream, its last batch.
CREATE TABLE holdfast.writes (
    batch bigint NOT NULL,
    jobs bigint NOT NULL,
    committed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    write_id text COLLATE "C" PRIMARY KEY,
    CONSTRAINT "write_id: 1 to 256 characters" CHECK (char_length(write_id) BETWEEN 1 AND 256)
);


-- Users and keys -----------------------------------------------------------------------------------------------------

-- A secret's SHA-256, never the secret. After a rotation with a grace period, the old secret is valid until old_until.
CREATE TABLE holdfast.api_keys (
    id text COLLATE "C" PRIMARY KEY CHECK (id ~ '^key_[0-9a-f]{16}$'),
    name text NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 128),
    digest bytea NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
    old_digest bytea UNIQUE CHECK (octet_length(old_digest) = 32),
    old_until timestamptz,
    scopes text[] NOT NULL CHECK (
        cardinality(scopes) > 0 AND scopes <@ ARRAY['read', 'write', 'delete', 'admin']),
    prefixes text[] COLLATE "C" NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by text NOT NULL,
    rotated_at timestamptz,
    expires_at timestamptz,
    revoked_at timestamptz,
    tenant text,
    hides_payloads boolean NOT NULL DEFAULT false,
    CHECK ((old_digest IS NULL) = (old_until IS NULL))
);

-- A deleted user's row stays, because a service with users always needs sign-in, and the audit trail refers to it. Each
-- password change sets a new `epoch`; tokens contain the epoch in which they were issued.
CREATE TABLE holdfast.users (
    id uuid PRIMARY KEY,
    username text COLLATE "C" NOT NULL CHECK (octet_length(username) BETWEEN 1 AND 128),
    password_hash text,
    is_admin boolean NOT NULL,
    epoch integer NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by text NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    deleted_at timestamptz,
    CHECK ((password_hash IS NULL) = (deleted_at IS NOT NULL))
);

CREATE TABLE holdfast.grants (
    id uuid PRIMARY KEY,
    user_id uuid NOT NULL,
    action text NOT NULL CHECK (action IN ('read', 'write', 'consume', 'admin')),
    topic_pattern text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by text NOT NULL,
    hides_payloads boolean NOT NULL DEFAULT false,
    UNIQUE (user_id, action, topic_pattern)
);

-- The secret that signs users' tokens: one row, created by the first process that needs it and has no HOLDFAST_JWT_SECRET.
CREATE TABLE holdfast.token_secret (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    secret bytea NOT NULL CHECK (octet_length(secret) >= 32),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Failed sign-in attempts, counted across all processes. `who` is a digest, because users may type anything as their name,
-- even a password.
CREATE TABLE holdfast.sign_in_tries (
    until timestamptz NOT NULL,
    tries integer NOT NULL CHECK (tries >= 0),
    who bytea NOT NULL CHECK (octet_length(who) = 32),
    PRIMARY KEY (who)
);

-- Attributes and tags of SQS queues that topics don't have, as objects of strings, and the time of the last purge.
CREATE TABLE holdfast.sqs_queues (
    topic_id integer PRIMARY KEY,
    attributes jsonb NOT NULL DEFAULT '{}',
    tags jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    purged_at timestamptz
);

-- Saved views of the admin pages.
CREATE TABLE holdfast.saved_views (
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    owner text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 512),
    address text COLLATE "C" NOT NULL CHECK (octet_length(address) BETWEEN 1 AND 4096),
    PRIMARY KEY (owner, name)
);

-- The audit trail. A trigger makes it append-only.
CREATE TABLE holdfast.audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor text NOT NULL,
    actor_name text,
    address text,
    action text NOT NULL,
    subject text COLLATE "C" NOT NULL,
    detail json NOT NULL DEFAULT '{}'
);


-- Upkeep and statistics ----------------------------------------------------------------------------------------------

-- The sweeps, their holders and schedules. run: the last run, NULL before the first. finished_at is NULL while it runs;
-- its process updates heartbeat_at. moved: what it has moved so far. due_after: scheduled times up to here are done.
-- schedule: NULL is the settings' default, '' is none.
CREATE TABLE holdfast.sweeps (
    name text COLLATE "C" PRIMARY KEY,
    run uuid,
    started_at timestamptz,
    heartbeat_at timestamptz,
    finished_at timestamptz,
    moved bigint NOT NULL DEFAULT 0,
    error text,
    schedule text,
    due_after timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((run IS NULL) = (started_at IS NULL) AND (run IS NULL) = (heartbeat_at IS NULL))
) WITH (
    fillfactor = 25,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- Each sweep's last runs that moved something or failed.
CREATE TABLE holdfast.sweep_runs (
    name text NOT NULL,
    run uuid NOT NULL,
    started_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    moved bigint NOT NULL,
    error text,
    PRIMARY KEY (name, finished_at, run)
);

-- Statistics of each topic's jobs for each minute with any activity. Durations are in whole ms. Percentiles are by nearest
-- rank, NULL without any value. The buckets have the counts of the same durations, only of buckets that are not empty, so
-- that percentiles of an hour can be calculated.
CREATE TABLE holdfast.topic_stats (
    minute timestamptz NOT NULL,
    topic_id integer NOT NULL,
    topic text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    enqueued bigint NOT NULL DEFAULT 0,
    completed bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    retried bigint NOT NULL DEFAULT 0,
    dead_lettered bigint NOT NULL DEFAULT 0,
    expired bigint NOT NULL DEFAULT 0,
    cancelled bigint NOT NULL DEFAULT 0,
    wait_count bigint NOT NULL DEFAULT 0,
    wait_p50_ms bigint,
    wait_p95_ms bigint,
    wait_p99_ms bigint,
    wait_buckets integer[] NOT NULL DEFAULT '{}',
    wait_counts bigint[] NOT NULL DEFAULT '{}',
    processing_count bigint NOT NULL DEFAULT 0,
    processing_p50_ms bigint,
    processing_p95_ms bigint,
    processing_p99_ms bigint,
    processing_buckets integer[] NOT NULL DEFAULT '{}',
    processing_counts bigint[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (topic_id, minute, tenant)
);

-- The progress of topic_stats, one row. Everything before filled_to is counted. mark: this and later transactions began
-- after marked_at. Once all earlier ones have ended, no older event can appear. Minutes up to guessed_to were counted while
-- an older transaction was open, and are counted again.
CREATE TABLE holdfast.topic_stats_progress (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    filled_to timestamptz NOT NULL,
    guessed_to timestamptz NOT NULL,
    marked_at timestamptz NOT NULL,
    mark xid8 NOT NULL
) WITH (fillfactor = 25);

-- Spark's results that are not merged yet. A crashed run leaves its rows for a day.
CREATE TABLE holdfast.topic_stats_staged (
    LIKE holdfast.topic_stats INCLUDING DEFAULTS,
    run uuid NOT NULL,
    staged_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- A queue's depth, read once a minute. A row only if it differs from the previous one.
CREATE TABLE holdfast.depths (
    topic_id integer NOT NULL,
    minute timestamptz NOT NULL,
    ready bigint NOT NULL CHECK (ready >= 0),
    in_flight bigint NOT NULL CHECK (in_flight >= 0),
    scheduled bigint NOT NULL CHECK (scheduled >= 0),
    blocked bigint NOT NULL CHECK (blocked >= 0),
    PRIMARY KEY (topic_id, minute)
);

-- When all queues' depths were read: between two rows of depths, the depth is known only for these times.
CREATE TABLE holdfast.depth_looks (
    minute timestamptz NOT NULL,
    PRIMARY KEY (minute)
);
