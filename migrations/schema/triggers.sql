-- What happens by itself. The functions are beside the code that relies on them: app/*/functions.


-- Groups: whatever takes a job out, a statement of today or a later one, frees its group. Rows without a group fail the
-- condition, which is looked at where they are changed: nothing is queued for them.
CREATE TRIGGER free_group_of_deleted AFTER DELETE ON holdfast.jobs FOR EACH ROW
    WHEN (OLD.grp IS NOT NULL AND OLD.original_topic IS NULL AND OLD.state IN ('ready', 'scheduled', 'leased'))
    EXECUTE FUNCTION holdfast.free_group();
CREATE TRIGGER free_group_of_ended AFTER UPDATE OF state ON holdfast.jobs FOR EACH ROW
    WHEN (OLD.grp IS NOT NULL AND OLD.original_topic IS NULL AND OLD.state IN ('ready', 'scheduled', 'leased')
          AND NEW.state IN ('failed', 'expired'))
    EXECUTE FUNCTION holdfast.free_group();

-- Endings become deliveries of webhooks.
CREATE TRIGGER tell BEFORE INSERT ON holdfast.endings FOR EACH ROW EXECUTE FUNCTION holdfast.tell();

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON holdfast.audit
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_change();


-- The inbox: rows are checked, then refused where their topic is drained, then taken in. Triggers of one kind fire in the
-- order of their names.
CREATE TRIGGER check_inbox AFTER INSERT ON holdfast.inbox REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.check_inbox();
CREATE TRIGGER refuse_drained AFTER INSERT ON holdfast.inbox REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_drained();
CREATE TRIGGER take_inbox AFTER INSERT ON holdfast.inbox REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION holdfast.take_inbox();

-- Staged rows are checked when they come, and taken in when a commit deletes them. What leaves otherwise becomes nothing.
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
