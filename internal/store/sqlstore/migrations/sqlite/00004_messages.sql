-- Forks that read through to their origins, where messages are found by position, and how threads relate.

-- +goose Up
ALTER TABLE thread ADD COLUMN origin_id TEXT NOT NULL DEFAULT ''; -- of the thread that this one was forked from
ALTER TABLE thread ADD COLUMN fork_index INTEGER NOT NULL DEFAULT 0;
ALTER TABLE thread_head ADD COLUMN base INTEGER NOT NULL DEFAULT 0; -- up to here messages are inherited, see message_segment

-- How many messages a thread has up to a sequence number: one row each few hundred numbers, at the edges of
-- segments, and wherever it was worth keeping. No row means none before the first message.
CREATE TABLE message_block (
    thread INTEGER NOT NULL REFERENCES thread (key) ON DELETE CASCADE,
    at     INTEGER NOT NULL,
    spoken INTEGER NOT NULL, -- of depth 0
    silent INTEGER NOT NULL, -- of depth 0
    deep   TEXT    NOT NULL, -- the counts of the depths from 1
    PRIMARY KEY (thread, at)
) STRICT, WITHOUT ROWID;

-- The messages of a thread from above lo up to hi are rows of the source: an ancestor, the thread itself, or what
-- is left of an ancestor, which is a thread without a head and a namespace.
CREATE TABLE message_segment (
    thread INTEGER NOT NULL REFERENCES thread (key) ON DELETE CASCADE,
    lo     INTEGER NOT NULL,
    hi     INTEGER NOT NULL,
    source INTEGER NOT NULL,
    PRIMARY KEY (thread, lo)
) STRICT, WITHOUT ROWID;
CREATE INDEX message_segment_source ON message_segment (source, hi);
CREATE INDEX thread_left ON thread (key) WHERE namespace = '';

CREATE TABLE relationship (
    thread        INTEGER NOT NULL REFERENCES thread (key) ON DELETE CASCADE,
    peer          TEXT    NOT NULL,
    type          TEXT    NOT NULL,
    role          TEXT    NOT NULL,
    message_index INTEGER NOT NULL, -- -1 when it is tied to none
    created_at    INTEGER NOT NULL,
    comment       TEXT    NOT NULL,
    PRIMARY KEY (thread, peer, type, role)
) STRICT, WITHOUT ROWID;
CREATE INDEX relationship_order ON relationship (thread, created_at, peer);

-- +goose Down
DROP TABLE relationship;
DROP INDEX thread_left;
DROP TABLE message_segment;
DROP TABLE message_block;
ALTER TABLE thread_head DROP COLUMN base;
ALTER TABLE thread DROP COLUMN fork_index;
ALTER TABLE thread DROP COLUMN origin_id;
