-- Backup and restore (SPEC K8S-09): which restore wrote a thread, the id by which the keys of a firing are made, rows of a restore
-- that is under way, and how long objects of the bucket stay for a backup.

-- +goose Up
ALTER TABLE thread ADD COLUMN restored TEXT COLLATE "C" NOT NULL DEFAULT ''; -- the id of the backup; '' again once the thread is retained by its object
ALTER TABLE effect_firing ADD COLUMN keyed_by TEXT COLLATE "C" NOT NULL DEFAULT ''; -- the effect's id when it was recorded, where a restore has changed it

CREATE TABLE restore_row (
    restore   TEXT COLLATE "C" NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    kind      TEXT COLLATE "C" NOT NULL, -- the table
    digest    TEXT COLLATE "C" NOT NULL, -- of the row, so that a repeat adds nothing
    data      TEXT NOT NULL,
    PRIMARY KEY (restore, namespace, kind, digest)
);

CREATE TABLE contents_hold (
    id         TEXT   NOT NULL PRIMARY KEY,
    expires_at BIGINT NOT NULL
);

-- +goose Down
DROP TABLE contents_hold;
DROP TABLE restore_row;
ALTER TABLE effect_firing DROP COLUMN keyed_by;
ALTER TABLE thread DROP COLUMN restored;
