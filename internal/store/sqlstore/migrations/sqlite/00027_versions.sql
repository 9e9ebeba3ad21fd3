-- Which releases may use the schema, and from when a replica may take the tasks after a run that another one has left.

-- +goose Up
-- The one row says which schema a replica must know at least. A migration that removes or changes what earlier releases read raises it.
CREATE TABLE schema_reader (
    id      INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    minimum INTEGER NOT NULL
);
INSERT INTO schema_reader (id, minimum) VALUES (1, 27);
ALTER TABLE run ADD COLUMN tasks_at INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE run DROP COLUMN tasks_at;
DROP TABLE schema_reader;
