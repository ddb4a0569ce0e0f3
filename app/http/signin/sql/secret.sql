-- The secret that signs tokens, where none is set.   No row: none was needed yet.
SELECT s.secret FROM holdfast.token_secret s
