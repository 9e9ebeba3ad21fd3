-- How many children live in each scope of a limit, so that one more is checked without counting the others. Triggers record each change,
-- whichever release makes it. A reservation counts the changes that are not in child_count yet, and moves many of them there at once.

-- +goose Up
CREATE TABLE child_count (
    namespace TEXT NOT NULL,
    scope     TEXT NOT NULL, -- parent, kind, agent or namespace
    name      TEXT NOT NULL, -- of the parent, of the parent and the kind, or of the agent
    n         INTEGER NOT NULL,
    PRIMARY KEY (namespace, scope, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX child_count_none ON child_count (namespace) WHERE n = 0;
CREATE TABLE child_change (
    key       INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    parent_id TEXT NOT NULL,
    kind      TEXT NOT NULL,
    agent     TEXT NOT NULL,
    n         INTEGER NOT NULL -- 1 or -1
) STRICT;
CREATE INDEX child_change_namespace ON child_change (namespace);
-- +goose StatementBegin
CREATE TRIGGER child_task_added AFTER INSERT ON child_task WHEN new.living = 1
BEGIN
    INSERT INTO child_change (namespace, parent_id, kind, agent, n) VALUES (new.namespace, new.parent_id, new.kind, new.agent, 1);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER child_task_turned AFTER UPDATE OF living ON child_task WHEN old.living <> new.living
BEGIN
    INSERT INTO child_change (namespace, parent_id, kind, agent, n) VALUES (new.namespace, new.parent_id, new.kind, new.agent, new.living - old.living);
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER child_task_removed AFTER DELETE ON child_task WHEN old.living = 1
BEGIN
    INSERT INTO child_change (namespace, parent_id, kind, agent, n) VALUES (old.namespace, old.parent_id, old.kind, old.agent, -1);
END;
-- +goose StatementEnd
INSERT INTO child_count (namespace, scope, name, n)
    SELECT namespace, 'namespace', '', count(*) FROM child_task WHERE living = 1 GROUP BY namespace
    UNION ALL SELECT namespace, 'parent', parent_id, count(*) FROM child_task WHERE living = 1 GROUP BY namespace, parent_id
    UNION ALL SELECT namespace, 'kind', parent_id || '/' || kind, count(*) FROM child_task WHERE living = 1 GROUP BY namespace, parent_id, kind
    UNION ALL SELECT namespace, 'agent', agent, count(*) FROM child_task WHERE living = 1 GROUP BY namespace, agent;

-- +goose Down
DROP TRIGGER child_task_removed;
DROP TRIGGER child_task_turned;
DROP TRIGGER child_task_added;
DROP TABLE child_change;
DROP TABLE child_count;
