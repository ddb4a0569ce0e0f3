-- Make the sequence that gives a topic's seqs.   $1 topic id
SELECT holdfast.create_topic_sequence($1)
