-- Messages that are removed in more than one transaction.

-- +goose Up
-- The rows of a thread after lo, up to hi, are not its messages any more. Those after own are gone.
CREATE TABLE message_cut (
    thread   BIGINT NOT NULL PRIMARY KEY REFERENCES thread (key) ON DELETE CASCADE,
    lo       BIGINT NOT NULL,
    hi       BIGINT NOT NULL,
    own      BIGINT NOT NULL,
    view_key BIGINT NOT NULL DEFAULT 0, -- the remnant with the segments of inherited messages that are removed; 0 for none
    left_key BIGINT NOT NULL DEFAULT 0, -- the remnant that has those of the rows that forks read; 0 for none
    logged   BIGINT NOT NULL, -- numbers up to it are for the log entries of deletions that are not written yet
    late     BIGINT NOT NULL, -- relationships made past this message are removed too
    began_at BIGINT NOT NULL
);
CREATE INDEX message_cut_began ON message_cut (began_at);

-- +goose Down
DROP TABLE message_cut;
