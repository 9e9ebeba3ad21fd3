-- Messages that are removed in more than one transaction.

-- +goose Up
-- The rows of a thread after lo, up to hi, are not its messages any more. Those after own are gone.
CREATE TABLE message_cut (
    thread   INTEGER NOT NULL PRIMARY KEY REFERENCES thread (key) ON DELETE CASCADE,
    lo       INTEGER NOT NULL,
    hi       INTEGER NOT NULL,
    own      INTEGER NOT NULL,
    view_key INTEGER NOT NULL DEFAULT 0, -- the remnant with the segments of inherited messages that are removed; 0 for none
    left_key INTEGER NOT NULL DEFAULT 0, -- the remnant that has those of the rows that forks read; 0 for none
    logged   INTEGER NOT NULL, -- numbers up to it are for the log entries of deletions that are not written yet
    late     INTEGER NOT NULL, -- relationships made past this message are removed too
    began_at INTEGER NOT NULL
) STRICT;
CREATE INDEX message_cut_began ON message_cut (began_at);

-- +goose Down
DROP TABLE message_cut;
