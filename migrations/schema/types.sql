-- Types of columns. An enum sorts in the order of its values. A later migration can add values, but not remove any.

CREATE TYPE holdfast.topic_type AS ENUM ('log', 'queue');
CREATE TYPE holdfast.durability AS ENUM ('ephemeral', 'memory', 'disk', 'fsync');

-- What to do with a job that has no deliveries left.
CREATE TYPE holdfast.exhaustion AS ENUM ('redeliver', 'fail', 'dead_letter');

-- What a full topic does: drops its oldest jobs or refuses new ones.
CREATE TYPE holdfast.discard AS ENUM ('old', 'reject');

-- The stored state. The current state also depends on the time: see holdfast.state_now.
CREATE TYPE holdfast.job_state AS ENUM ('scheduled', 'ready', 'blocked', 'leased', 'failed', 'expired');

CREATE TYPE holdfast.job_event AS ENUM (
    'enqueued', 'claimed', 'extended', 'released', 'acked', 'dead_lettered', 'failed', 'expired', 'deleted', 'updated',
    'superseded', 'requeued', 'unblocked', 'cancelled'
);

-- How a job in the archive ended.
CREATE TYPE holdfast.outcome AS ENUM ('completed');
