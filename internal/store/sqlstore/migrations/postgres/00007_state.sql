-- Thread and session state, the key-value service, the lifecycle feed, sums of usage, imports.

-- +goose Up
CREATE TABLE thread_state (
    thread BIGINT           NOT NULL REFERENCES thread (key) ON DELETE CASCADE,
    key    TEXT COLLATE "C" NOT NULL,
    pos    BIGINT           NOT NULL, -- keys are listed in the order in which they were first set
    size   BIGINT           NOT NULL, -- of key and value as JSON
    value  TEXT             NOT NULL,
    PRIMARY KEY (thread, key)
);

CREATE TABLE thread_state_warning (
    thread     BIGINT NOT NULL REFERENCES thread (key) ON DELETE CASCADE,
    scope      TEXT   NOT NULL,
    reason     TEXT   NOT NULL,
    message    TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (thread, scope)
);

ALTER TABLE run ADD COLUMN session_state TEXT;

CREATE TABLE kv_service (
    namespace  TEXT COLLATE "C" NOT NULL,
    store      TEXT COLLATE "C" NOT NULL,
    key        TEXT COLLATE "C" NOT NULL,
    expires_at BIGINT           NOT NULL, -- 0 for never
    updated_at BIGINT           NOT NULL,
    value      TEXT             NOT NULL,
    PRIMARY KEY (namespace, store, key)
);
CREATE INDEX kv_service_expiry ON kv_service (expires_at) WHERE expires_at > 0;

-- tick is the transaction that wrote the entry. Numbers are given before transactions commit, so that readers
-- take entries in the order of their transactions, and only those below which none is under way any more.
CREATE TABLE lifecycle (
    seq         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tick        BIGINT NOT NULL DEFAULT (pg_current_xact_id()::text::bigint),
    namespace   TEXT   NOT NULL,
    type        TEXT   NOT NULL,
    thread_id   TEXT   NOT NULL,
    thread_name TEXT   NOT NULL,
    agent       TEXT   NOT NULL,
    run_id      TEXT   NOT NULL,
    reason      TEXT   NOT NULL,
    created_at  BIGINT NOT NULL
);
CREATE INDEX lifecycle_order ON lifecycle (tick, seq);

-- What ended runs used, by thread and agent. A row outlives its thread: when the tree's root is purged, it is
-- added to the row of its agent, whose thread_id is ''.
CREATE TABLE usage_sum (
    namespace        TEXT             NOT NULL,
    agent            TEXT             NOT NULL,
    thread_id        TEXT             NOT NULL,
    parent_id        TEXT             NOT NULL,
    root_id          TEXT             NOT NULL,
    purged           BIGINT           NOT NULL,
    runs             BIGINT           NOT NULL,
    turns            BIGINT           NOT NULL,
    input_tokens     BIGINT           NOT NULL,
    output_tokens    BIGINT           NOT NULL,
    cached_tokens    BIGINT           NOT NULL,
    reasoning_tokens BIGINT           NOT NULL,
    cost             DOUBLE PRECISION NOT NULL,
    duration_ms      BIGINT           NOT NULL,
    threads          BIGINT           NOT NULL, -- 1 once the thread ran; the number of threads in a row that gathers several
    PRIMARY KEY (namespace, agent, thread_id)
);
CREATE INDEX usage_sum_thread ON usage_sum (thread_id) WHERE thread_id <> '';
CREATE INDEX usage_sum_parent ON usage_sum (parent_id) WHERE parent_id <> '';
CREATE INDEX usage_sum_purged ON usage_sum (root_id) WHERE purged = 1;

CREATE TABLE thread_import (
    thread   BIGINT PRIMARY KEY REFERENCES thread (key) ON DELETE CASCADE,
    manifest TEXT   NOT NULL,
    last_seq BIGINT NOT NULL
);

-- +goose Down
DROP TABLE thread_import;
DROP TABLE usage_sum;
DROP TABLE lifecycle;
DROP TABLE kv_service;
ALTER TABLE run DROP COLUMN session_state;
DROP TABLE thread_state_warning;
DROP TABLE thread_state;
