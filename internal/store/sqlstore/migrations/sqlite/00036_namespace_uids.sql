-- Whose data goes by the name of a namespace: that of the namespace with this UID, and of no later one with the name.

-- +goose Up
-- '' until the leader finds out, for rows that were written before or by a replica of the release before.
ALTER TABLE kv_service ADD COLUMN namespace_uid TEXT NOT NULL DEFAULT '';
ALTER TABLE usage_sum ADD COLUMN namespace_uid TEXT NOT NULL DEFAULT '';
ALTER TABLE lifecycle ADD COLUMN namespace_uid TEXT NOT NULL DEFAULT '';

-- The cluster whose namespaces the UIDs are of. There is one row, or none.
CREATE TABLE cluster (
    id  INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    uid TEXT    NOT NULL
);

-- +goose Down
DROP TABLE cluster;
ALTER TABLE lifecycle DROP COLUMN namespace_uid;
ALTER TABLE usage_sum DROP COLUMN namespace_uid;
ALTER TABLE kv_service DROP COLUMN namespace_uid;
