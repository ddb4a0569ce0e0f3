-- Words that columns hold. The order of an enum is the order in which it sorts; a later migration can add a word to one,
-- and can't take one away.

CREATE TYPE holdfast.topic_type AS ENUM ('log', 'queue');
CREATE TYPE holdfast.durability AS ENUM ('ephemeral', 'memory', 'disk', 'fsync');

-- What becomes of a job with no deliveries left.
CREATE TYPE holdfast.exhaustion AS ENUM ('redeliver', 'fail', 'dead_letter');

-- What a full topic does: drops its oldest, or refuses what comes.
CREATE TYPE holdfast.discard AS ENUM ('old', 'reject');

-- As stored: by the clock a job's state may be another one, which holdfast.state_now says.
CREATE TYPE holdfast.job_state AS ENUM ('scheduled', 'ready', 'blocked', 'leased', 'failed', 'expired');

CREATE TYPE holdfast.job_event AS ENUM (
    'enqueued', 'claimed', 'extended', 'released', 'acked', 'dead_lettered', 'failed', 'expired', 'deleted', 'updated',
    'superseded', 'requeued', 'unblocked', 'cancelled'
);

-- How a job in the archive ended.
CREATE TYPE holdfast.outcome AS ENUM ('completed');
