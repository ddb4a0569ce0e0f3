-- Whether a watch is kept, whoever owns it.   $1 wid   One row: it is.   Index: primary key.
SELECT w.wid FROM holdfast.watches w WHERE w.wid = $1 AND w.expires_at > now()
