-- Distributes the tables over the nodes of a Citus cluster. Untested: see README.md beside this file.
--
-- On the coordinator, after keys.sql, in an empty installation: `psql -v ON_ERROR_STOP=1 -f distribute.sql`.
-- Partitions, including those created later, follow their partitioned table.
CREATE EXTENSION IF NOT EXISTS citus;

SELECT create_reference_table('holdfast.topics');
SELECT create_reference_table('holdfast.topic_schemas');
SELECT create_reference_table('holdfast.sqs_queues');
SELECT create_reference_table('holdfast.defaults');
SELECT create_reference_table('holdfast.webhook_secrets');
SELECT create_reference_table('holdfast.depth_looks');

SELECT create_distributed_table('holdfast.jobs', 'topic_id', colocate_with => 'none');
SELECT create_distributed_table('holdfast.lease_events', 'topic_id', colocate_with => 'holdfast.jobs');
SELECT create_distributed_table('holdfast.results', 'topic_id', colocate_with => 'holdfast.jobs');
SELECT create_distributed_table('holdfast.archive', 'topic_id', colocate_with => 'holdfast.jobs');
SELECT create_distributed_table('holdfast.endings', 'topic_id', colocate_with => 'holdfast.jobs');
SELECT create_distributed_table('holdfast.tallies', 'topic_id', colocate_with => 'holdfast.jobs');
SELECT create_distributed_table('holdfast.dedupe', 'topic_id', colocate_with => 'holdfast.jobs');
SELECT create_distributed_table('holdfast.groups', 'topic_id', colocate_with => 'holdfast.jobs');
SELECT create_distributed_table('holdfast.freed_groups', 'topic_id', colocate_with => 'holdfast.jobs');
SELECT create_distributed_table('holdfast.buckets', 'topic_id', colocate_with => 'holdfast.jobs');
SELECT create_distributed_table('holdfast.topic_stats', 'topic_id', colocate_with => 'holdfast.jobs');
SELECT create_distributed_table('holdfast.depths', 'topic_id', colocate_with => 'holdfast.jobs');
SELECT create_distributed_table('holdfast.log_state', 'topic_id', colocate_with => 'holdfast.jobs');
SELECT create_distributed_table('holdfast.replays', 'topic_id', colocate_with => 'holdfast.jobs');
SELECT create_distributed_table('holdfast.records', 'topic_id', colocate_with => 'holdfast.jobs');
SELECT create_distributed_table('holdfast.idempotency', 'topic_id', colocate_with => 'holdfast.jobs');
SELECT create_distributed_table('holdfast.lanes', 'topic_id', colocate_with => 'holdfast.jobs');
