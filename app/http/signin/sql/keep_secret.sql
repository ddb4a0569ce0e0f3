-- Keep a secret for tokens, unless another process was first.   $1 the secret
INSERT INTO holdfast.token_secret (secret) VALUES ($1) ON CONFLICT (singleton) DO NOTHING
