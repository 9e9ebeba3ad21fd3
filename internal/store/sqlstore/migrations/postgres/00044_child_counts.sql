-- How many children live in each scope of a limit, so that one more is checked without counting the others. Triggers record each change,
-- whichever release makes it. A reservation counts the changes that are not in child_count yet, and moves many of them there at once.
-- Changes are new rows, so that transactions about different children do not wait for each other.

-- +goose Up
CREATE TABLE child_count (
    namespace TEXT COLLATE "C" NOT NULL,
    scope     TEXT COLLATE "C" NOT NULL, -- parent, kind, agent or namespace
    name      TEXT COLLATE "C" NOT NULL, -- of the parent, of the parent and the kind, or of the agent
    n         BIGINT NOT NULL,
    PRIMARY KEY (namespace, scope, name)
);
CREATE INDEX child_count_none ON child_count (namespace) WHERE n = 0;
CREATE TABLE child_change (
    key       BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace TEXT COLLATE "C" NOT NULL,
    parent_id TEXT COLLATE "C" NOT NULL,
    kind      TEXT COLLATE "C" NOT NULL,
    agent     TEXT COLLATE "C" NOT NULL,
    n         BIGINT NOT NULL -- 1 or -1
);
CREATE INDEX child_change_namespace ON child_change (namespace);
-- +goose StatementBegin
CREATE FUNCTION child_task_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO child_change (namespace, parent_id, kind, agent, n) VALUES (NEW.namespace, NEW.parent_id, NEW.kind, NEW.agent, 1);
    ELSIF TG_OP = 'UPDATE' THEN
        INSERT INTO child_change (namespace, parent_id, kind, agent, n) VALUES (NEW.namespace, NEW.parent_id, NEW.kind, NEW.agent, NEW.living - OLD.living);
    ELSE
        INSERT INTO child_change (namespace, parent_id, kind, agent, n) VALUES (OLD.namespace, OLD.parent_id, OLD.kind, OLD.agent, -1);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER child_task_added AFTER INSERT ON child_task FOR EACH ROW WHEN (NEW.living = 1) EXECUTE FUNCTION child_task_changed();
CREATE TRIGGER child_task_turned AFTER UPDATE OF living ON child_task FOR EACH ROW WHEN (OLD.living <> NEW.living) EXECUTE FUNCTION child_task_changed();
CREATE TRIGGER child_task_removed AFTER DELETE ON child_task FOR EACH ROW WHEN (OLD.living = 1) EXECUTE FUNCTION child_task_changed();
-- The triggers keep other transactions from writing child_task until this one ends.
INSERT INTO child_count (namespace, scope, name, n)
    SELECT namespace, 'namespace', '', count(*) FROM child_task WHERE living = 1 GROUP BY namespace
    UNION ALL SELECT namespace, 'parent', parent_id, count(*) FROM child_task WHERE living = 1 GROUP BY namespace, parent_id
    UNION ALL SELECT namespace, 'kind', parent_id || '/' || kind, count(*) FROM child_task WHERE living = 1 GROUP BY namespace, parent_id, kind
    UNION ALL SELECT namespace, 'agent', agent, count(*) FROM child_task WHERE living = 1 GROUP BY namespace, agent;

-- +goose Down
DROP TRIGGER child_task_removed ON child_task;
DROP TRIGGER child_task_turned ON child_task;
DROP TRIGGER child_task_added ON child_task;
DROP FUNCTION child_task_changed;
DROP TABLE child_change;
DROP TABLE child_count;
