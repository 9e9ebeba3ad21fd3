-- Backup and restore (SPEC K8S-09): which restore wrote a thread, the id by which the keys of a firing are made, rows of a restore
-- that is under way, and how long objects of the bucket stay for a backup.

-- +goose Up
ALTER TABLE thread ADD COLUMN restored TEXT NOT NULL DEFAULT ''; -- the id of the backup; '' again once the thread is retained by its object
ALTER TABLE effect_firing ADD COLUMN keyed_by TEXT NOT NULL DEFAULT ''; -- the effect's id when it was recorded, where a restore has changed it

CREATE TABLE restore_row (
    restore   TEXT NOT NULL,
    namespace TEXT NOT NULL,
    kind      TEXT NOT NULL, -- the table
    digest    TEXT NOT NULL, -- of the row, so that a repeat adds nothing
    data      TEXT NOT NULL,
    PRIMARY KEY (restore, namespace, kind, digest)
) STRICT, WITHOUT ROWID;

CREATE TABLE contents_hold (
    id         TEXT    NOT NULL PRIMARY KEY,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE contents_hold;
DROP TABLE restore_row;
ALTER TABLE effect_firing DROP COLUMN keyed_by;
ALTER TABLE thread DROP COLUMN restored;
