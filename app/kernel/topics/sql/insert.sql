-- Create a topic, and for a log the state of an empty one.   $1 name  $2 its configuration as a JSON object of columns
-- Answers one row: its id. No row: the name is taken.   {settings} and {chosen} are the columns of settings.py
WITH new AS (
    INSERT INTO holdfast.topics (name, {settings})
    SELECT $1, {chosen} FROM json_populate_record(NULL::holdfast.topics, $2::json) c
    ON CONFLICT (name) DO NOTHING
    RETURNING id, type
), log AS (
    INSERT INTO holdfast.log_state (topic, topic_id, version) SELECT $1, id, 1 FROM new WHERE type = 'log'
)
SELECT id FROM new
