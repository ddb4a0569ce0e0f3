-- Drop rows that were staged more than a day ago and never committed.   $1 most rows
-- Answers one row: how many went. What somebody is writing or committing stays.   Index: primary keys.
SELECT holdfast.drop_stages(NULL, $1::integer)
