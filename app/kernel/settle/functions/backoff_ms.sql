-- How long a job waits after its n-th delivery, in ms. Nothing overflows: n stops counting where any base has reached
-- the longest cap.
CREATE OR REPLACE FUNCTION holdfast.backoff_ms(policy json, deliveries integer) RETURNS bigint
LANGUAGE sql PARALLEL SAFE
AS $$
    SELECT (least((policy->>'cap_ms')::float8,
                  (policy->>'base_ms')::float8
                  * CASE policy->>'kind' WHEN 'fixed' THEN 1 WHEN 'linear' THEN deliveries
                                         WHEN 'exponential' THEN 2 ^ least(deliveries - 1, 30) ELSE 0 END)
            * (1 - random() * CASE policy->>'jitter' WHEN 'full' THEN 1 WHEN 'equal' THEN 0.5 ELSE 0 END))::bigint
$$;
