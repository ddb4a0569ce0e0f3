-- Every queue has been looked at by now.   Index: primary key.
INSERT INTO holdfast.depth_looks (minute) VALUES (date_trunc('minute', now(), 'UTC')) ON CONFLICT (minute) DO NOTHING
