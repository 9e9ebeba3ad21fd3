-- +goose Up
-- A status lists the relationships in which a thread is the child, then the newest in which it is the parent.
CREATE INDEX relationship_role ON relationship (thread, role, created_at);

-- +goose Down
DROP INDEX relationship_role;
