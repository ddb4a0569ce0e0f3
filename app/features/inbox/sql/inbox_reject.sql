-- Keep rows of the inbox that can't go in, with the reason.
--   $1 topic   one each per row:  $2 reasons  $3 payloads  $4 content types  $5 metadata  $6 tags  $7 nodes
--   $8 priorities  $9 delays in ms  $10 run_at  $11 TTLs in ms  $12 max_deliveries  $13 keys  $14 tenants  $15 groups
--   $16 dedupe ids  $17 users  $18 webhooks  $19 when they were inserted
INSERT INTO holdfast.inbox_rejects (topic, reason, payload, content_type, metadata, tag, node, priority, delay_ms, run_at,
                                    ttl_ms, max_deliveries, key, tenant, "group", dedupe_id, user_id, webhook, inserted_at)
SELECT $1, r.* FROM unnest($2::text[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::text[], $8::integer[],
                           $9::bigint[], $10::timestamptz[], $11::bigint[], $12::integer[], $13::text[],
                           $14::text[], $15::text[], $16::text[], $17::text[], $18::text[], $19::timestamptz[]) AS r
