-- For how many days before today the ledger is kept: as long as the topic wants that wants it longest.
--   $1 days, where there is no topic   NULL: for ever.
SELECT CASE WHEN count(*) = 0 THEN $1::integer
            WHEN min(event_ttl_ms) > 0 THEN ceil(max(event_ttl_ms) / 86400000.0)::integer END
FROM holdfast.topics
