-- Put rows that fit into their queue, as whoever inserts them into the inbox does; counted from when they were inserted.
--   $1 topic  $2 the version of its schema that they fit; 0: there is none
--   one each per row:  $3 payloads  $4 content types  $5 metadata  $6 tags  $7 nodes  $8 priorities  $9 delays in ms
--   $10 run_at  $11 TTLs in ms  $12 max_deliveries  $13 keys  $14 tenants  $15 groups  $16 dedupe ids  $17 users  $18 webhooks
--   $19 when they were inserted
-- If the schema is another one meanwhile, they are looked at once more. Raises what the inbox raises.
INSERT INTO holdfast.inbox (topic, checked, payload, content_type, metadata, tag, node, priority, run_at, ttl_ms,
                            max_deliveries, key, tenant, "group", dedupe_id, user_id, webhook)
SELECT $1, $2::integer, r.payload, r.content_type, r.metadata, r.tag, r.node, r.priority,
       greatest(r.run_at, r.inserted_at + r.delay_ms * interval '1 ms'), r.ttl_ms, r.max_deliveries, r.key, r.tenant,
       r.grp, r.dedupe_id, r.user_id, r.webhook
FROM unnest($3::bytea[], $4::text[], $5::text[], $6::text[], $7::text[], $8::integer[], $9::bigint[],
            $10::timestamptz[], $11::bigint[], $12::integer[], $13::text[], $14::text[], $15::text[], $16::text[],
            $17::text[], $18::text[], $19::timestamptz[])
    WITH ORDINALITY AS r(payload, content_type, metadata, tag, node, priority, delay_ms, run_at, ttl_ms,
                         max_deliveries, key, tenant, grp, dedupe_id, user_id, webhook, inserted_at, ord)
ORDER BY r.ord
