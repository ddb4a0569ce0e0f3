-- Drop a topic's sequence. Waits for every transaction that has drawn from it, and lets none draw any more.   $1 topic id
SELECT holdfast.drop_topic_sequence($1)
