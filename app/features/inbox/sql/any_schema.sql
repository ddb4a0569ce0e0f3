-- Whether any topic has a schema, so that rows may wait in the inbox to be looked at.   Answers one row.
SELECT EXISTS (SELECT 1 FROM holdfast.topic_schemas s WHERE s.schema IS NOT NULL)
    OR EXISTS (SELECT 1 FROM holdfast.inbox_unchecked)
