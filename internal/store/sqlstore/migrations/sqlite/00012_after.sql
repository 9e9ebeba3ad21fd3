-- What follows runs: vectors of messages, by which they are found, and what the tasks used that follow runs.

-- +goose Up
CREATE TABLE embedding (
    key        INTEGER PRIMARY KEY,
    thread     INTEGER NOT NULL REFERENCES thread (key) ON DELETE CASCADE,
    seq        INTEGER NOT NULL, -- of the message, which is the thread's own
    namespace  TEXT NOT NULL,
    agent      TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    space      TEXT NOT NULL, -- vectors of different spaces do not compare
    created_at INTEGER NOT NULL, -- of the message
    vector     BLOB NOT NULL  -- of length 1, as 32-bit floating point numbers, the lowest byte first
) STRICT;
CREATE UNIQUE INDEX embedding_message ON embedding (thread, seq);
CREATE INDEX embedding_memory ON embedding (namespace, agent, user_id, space, created_at);

CREATE TABLE task_usage (
    thread     INTEGER NOT NULL REFERENCES thread (key) ON DELETE CASCADE,
    run        TEXT NOT NULL,
    task       TEXT NOT NULL,
    agent      TEXT NOT NULL,
    usage      TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (thread, run, task)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE task_usage;
DROP TABLE embedding;
