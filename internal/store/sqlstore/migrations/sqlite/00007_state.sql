-- Thread and session state, the key-value service, the lifecycle feed, sums of usage, imports.

-- +goose Up
-- Small columns come before the value, so that sums and looks for a key read no more than the row's beginning.
CREATE TABLE thread_state (
    thread INTEGER NOT NULL REFERENCES thread (key) ON DELETE CASCADE,
    key    TEXT    NOT NULL,
    pos    INTEGER NOT NULL, -- keys are listed in the order in which they were first set
    size   INTEGER NOT NULL, -- of key and value as JSON
    value  TEXT    NOT NULL,
    PRIMARY KEY (thread, key)
) STRICT;

CREATE TABLE thread_state_warning (
    thread     INTEGER NOT NULL REFERENCES thread (key) ON DELETE CASCADE,
    scope      TEXT    NOT NULL,
    reason     TEXT    NOT NULL,
    message    TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (thread, scope)
) STRICT, WITHOUT ROWID;

ALTER TABLE run ADD COLUMN session_state TEXT;

CREATE TABLE kv_service (
    namespace  TEXT    NOT NULL,
    store      TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    expires_at INTEGER NOT NULL, -- 0 for never
    updated_at INTEGER NOT NULL,
    value      TEXT    NOT NULL,
    PRIMARY KEY (namespace, store, key)
) STRICT;
CREATE INDEX kv_service_expiry ON kv_service (expires_at) WHERE expires_at > 0;

-- AUTOINCREMENT: a number is never used again, so that a cursor stays true when all was swept.
CREATE TABLE lifecycle (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace   TEXT    NOT NULL,
    type        TEXT    NOT NULL,
    thread_id   TEXT    NOT NULL,
    thread_name TEXT    NOT NULL,
    agent       TEXT    NOT NULL,
    run_id      TEXT    NOT NULL,
    reason      TEXT    NOT NULL,
    created_at  INTEGER NOT NULL
) STRICT;

-- What ended runs used, by thread and agent. A row outlives its thread: when the tree's root is purged, it is
-- added to the row of its agent, whose thread_id is ''.
CREATE TABLE usage_sum (
    namespace        TEXT    NOT NULL,
    agent            TEXT    NOT NULL,
    thread_id        TEXT    NOT NULL,
    parent_id        TEXT    NOT NULL,
    root_id          TEXT    NOT NULL,
    purged           INTEGER NOT NULL,
    runs             INTEGER NOT NULL,
    turns            INTEGER NOT NULL,
    input_tokens     INTEGER NOT NULL,
    output_tokens    INTEGER NOT NULL,
    cached_tokens    INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    cost             REAL    NOT NULL,
    duration_ms      INTEGER NOT NULL,
    threads          INTEGER NOT NULL, -- 1 once the thread ran; the number of threads in a row that gathers several
    PRIMARY KEY (namespace, agent, thread_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_sum_thread ON usage_sum (thread_id) WHERE thread_id <> '';
CREATE INDEX usage_sum_parent ON usage_sum (parent_id) WHERE parent_id <> '';
CREATE INDEX usage_sum_purged ON usage_sum (root_id) WHERE purged = 1;

CREATE TABLE thread_import (
    thread   INTEGER PRIMARY KEY REFERENCES thread (key) ON DELETE CASCADE,
    manifest TEXT    NOT NULL,
    last_seq INTEGER NOT NULL
) STRICT;

-- +goose Down
DROP TABLE thread_import;
DROP TABLE usage_sum;
DROP TABLE lifecycle;
DROP TABLE kv_service;
ALTER TABLE run DROP COLUMN session_state;
DROP TABLE thread_state_warning;
DROP TABLE thread_state;
