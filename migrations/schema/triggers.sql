-- Triggers. Their functions are beside the code that relies on them: app/*/functions.


-- Groups: any statement that removes a group's current job, now or in a later version, frees the group. PostgreSQL checks
-- the condition when a row changes, and so queues nothing for rows without a group.
CREATE TRIGGER free_group_of_deleted AFTER DELETE ON holdfast.jobs FOR EACH ROW
    WHEN (OLD.grp IS NOT NULL AND OLD.original_topic IS NULL AND OLD.state IN ('ready', 'scheduled', 'leased'))
    EXECUTE FUNCTION holdfast.free_group();
CREATE TRIGGER free_group_of_ended AFTER UPDATE OF state ON holdfast.jobs FOR EACH ROW
    WHEN (OLD.grp IS NOT NULL AND OLD.original_topic IS NULL AND OLD.state IN ('ready', 'scheduled', 'leased')
          AND NEW.state IN ('failed', 'expired'))
    EXECUTE FUNCTION holdfast.free_group();

-- Endings become webhook deliveries.
CREATE TRIGGER tell BEFORE INSERT ON holdfast.endings FOR EACH ROW EXECUTE FUNCTION holdfast.tell();

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON holdfast.audit
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_change();


-- The inbox: rows are checked, refused if their topic is drained, then turned into jobs. Triggers of one kind fire in the
-- order of their names.
CREATE TRIGGER check_inbox AFTER INSERT ON holdfast.inbox REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.check_inbox();
CREATE TRIGGER refuse_drained AFTER INSERT ON holdfast.inbox REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_drained();
CREATE TRIGGER take_inbox AFTER INSERT ON holdfast.inbox REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.take_inbox();

-- Staged rows are checked when they are inserted, and become jobs when a commit deletes them. Other deletions only delete.
CREATE TRIGGER check_inbox AFTER INSERT ON holdfast.staged REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.check_inbox();
CREATE TRIGGER hold_stage AFTER INSERT ON holdfast.staged REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.hold_stage();
CREATE TRIGGER refuse_drained AFTER DELETE ON holdfast.staged REFERENCING OLD TABLE AS added
    FOR EACH STATEMENT WHEN (current_setting('holdfast.commits', true) = 'on')
    EXECUTE FUNCTION holdfast.refuse_drained();
CREATE TRIGGER take_inbox AFTER DELETE ON holdfast.staged REFERENCING OLD TABLE AS added
    FOR EACH STATEMENT WHEN (current_setting('holdfast.commits', true) = 'on')
    EXECUTE FUNCTION holdfast.take_inbox();

-- At commit.
CREATE CONSTRAINT TRIGGER add_new_lanes AFTER INSERT ON holdfast.new_lanes DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION holdfast.add_new_lanes();
