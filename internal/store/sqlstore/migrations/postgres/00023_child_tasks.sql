-- What parents give to the children that their runs make, and the living children of each parent, agent and namespace.

-- +goose Up
CREATE TABLE child_task (
    id         TEXT NOT NULL PRIMARY KEY,
    parent_id  TEXT NOT NULL,
    reference  TEXT NOT NULL,
    namespace  TEXT NOT NULL,
    kind       TEXT NOT NULL,
    agent      TEXT NOT NULL,
    task       TEXT, -- NULL for a child that was not made by a run
    salt       TEXT NOT NULL, -- the key of the task's digest
    living     BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX child_task_reference ON child_task (parent_id, reference);
CREATE INDEX child_task_living ON child_task (parent_id, kind) WHERE living = 1;
CREATE INDEX child_task_agent ON child_task (namespace, agent) WHERE living = 1;
INSERT INTO child_task (id, parent_id, reference, namespace, kind, agent, task, salt, living, created_at)
    SELECT 'thread:' || t.id, t.parent_id, t.reference, t.namespace, COALESCE(t.child::json->>'name', ''), t.agent, NULL, '', 1, t.created_at
    FROM thread t WHERE t.parent_id <> '' AND t.reference <> '' AND t.child IS NOT NULL AND t.terminated_at = 0 AND t.retained_at = 0
    ON CONFLICT DO NOTHING;

-- Each row is locked while a child of its namespace is counted.
CREATE TABLE child_namespace (
    namespace TEXT NOT NULL PRIMARY KEY
);

CREATE INDEX thread_reference ON thread (parent_id, reference) WHERE parent_id <> '';

-- +goose Down
DROP INDEX thread_reference;
DROP TABLE child_namespace;
DROP TABLE child_task;
