-- Does a topic hold any live job?   $1 name   Index: primary key.
SELECT EXISTS (SELECT 1 FROM holdfast.jobs j WHERE j.topic = $1 AND j.state::text NOT IN ('failed', 'expired'))
