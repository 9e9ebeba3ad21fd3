-- What follows runs: vectors of messages, by which they are found, and what the tasks used that follow runs.

-- +goose Up
CREATE TABLE embedding (
    thread     BIGINT NOT NULL REFERENCES thread (key) ON DELETE CASCADE,
    seq        BIGINT NOT NULL, -- of the message, which is the thread's own
    namespace  TEXT NOT NULL,
    agent      TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    space      TEXT NOT NULL, -- vectors of different spaces do not compare
    created_at BIGINT NOT NULL, -- of the message
    vector     BYTEA NOT NULL  -- of length 1, as 32-bit floating point numbers, the lowest byte first
);
CREATE UNIQUE INDEX embedding_message ON embedding (thread, seq);
CREATE INDEX embedding_memory ON embedding (namespace, agent, user_id, space, created_at);

CREATE TABLE task_usage (
    thread     BIGINT NOT NULL REFERENCES thread (key) ON DELETE CASCADE,
    run        TEXT NOT NULL,
    task       TEXT NOT NULL,
    agent      TEXT NOT NULL,
    usage      TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (thread, run, task)
);

-- +goose Down
DROP TABLE task_usage;
DROP TABLE embedding;
