-- Times are microseconds since 1970. A thread's one sequence numbers its messages, inbox items and log
-- entries, so that "seq > last" is all that a reader must remember.

-- +goose Up
CREATE TABLE thread (
    key               INTEGER PRIMARY KEY,
    id                TEXT    NOT NULL UNIQUE,
    namespace         TEXT    NOT NULL,
    name              TEXT    NOT NULL,
    agent             TEXT    NOT NULL,
    user_id           TEXT    NOT NULL,
    task_id           TEXT    NOT NULL,
    title             TEXT    NOT NULL,
    arguments         TEXT,
    created_at        INTEGER NOT NULL,
    parent_id         TEXT    NOT NULL,
    reference         TEXT    NOT NULL,
    root_id           TEXT    NOT NULL,
    depth             INTEGER NOT NULL,
    child             TEXT,
    terminated_at     INTEGER NOT NULL,
    terminated_reason TEXT    NOT NULL,
    registry_status   TEXT    NOT NULL
) STRICT;
CREATE INDEX thread_parent ON thread (parent_id, created_at) WHERE parent_id <> '';

-- What changes with every write is apart from what may be large and rarely changes.
CREATE TABLE thread_head (
    thread           INTEGER PRIMARY KEY REFERENCES thread (key) ON DELETE CASCADE,
    namespace        TEXT    NOT NULL,
    version          INTEGER NOT NULL,
    last_seq         INTEGER NOT NULL,
    counts           TEXT    NOT NULL, -- of messages by depth: "spoken/silent,…"
    queued           INTEGER NOT NULL, -- inbox items that are messages
    waiting          INTEGER NOT NULL, -- inbox items
    running          INTEGER NOT NULL, -- runs that are under way
    work_since       INTEGER,          -- NULL when there is nothing to do
    last_activity_at INTEGER NOT NULL,
    activity_second  INTEGER NOT NULL  -- of last_activity_at; coarse, so that the indexes seldom change
) STRICT;
CREATE INDEX thread_head_work ON thread_head (namespace, work_since) WHERE work_since IS NOT NULL;
CREATE INDEX thread_head_activity ON thread_head (activity_second);
CREATE INDEX thread_head_namespace_activity ON thread_head (namespace, activity_second);

CREATE TABLE lease (
    thread     INTEGER PRIMARY KEY REFERENCES thread (key) ON DELETE CASCADE,
    owner      TEXT    NOT NULL, -- '' when nobody holds it
    epoch      INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;

-- A message is its own log entry of the type message.created, under the same seq. The rows stand in the
-- order of their writing, and made-up ids grow with the time, so that the appends of many threads that
-- share a commit share pages too. message_order answers what is on a page of messages without the rows.
CREATE TABLE message (
    key          INTEGER PRIMARY KEY,
    thread       INTEGER NOT NULL REFERENCES thread (key) ON DELETE CASCADE,
    seq          INTEGER NOT NULL,
    id           TEXT    NOT NULL,
    role         TEXT    NOT NULL,
    silent       INTEGER NOT NULL,
    depth        INTEGER NOT NULL,
    status       TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    run_id       TEXT    NOT NULL,
    tool_call_id TEXT,
    content      TEXT,
    rest         TEXT  -- JSON of the fields that most messages do not have
) STRICT;
CREATE INDEX message_order ON message (thread, seq, silent, depth);
CREATE UNIQUE INDEX message_id ON message (id, thread);
CREATE INDEX message_tool_call ON message (thread, tool_call_id) WHERE tool_call_id IS NOT NULL;

CREATE TABLE log (
    thread     INTEGER NOT NULL REFERENCES thread (key) ON DELETE CASCADE,
    seq        INTEGER NOT NULL,
    type       TEXT    NOT NULL,
    run_id     TEXT    NOT NULL,
    message_id TEXT    NOT NULL,
    data       TEXT,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (thread, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE inbox (
    thread     INTEGER NOT NULL REFERENCES thread (key) ON DELETE CASCADE,
    seq        INTEGER NOT NULL,
    key        TEXT    NOT NULL,
    kind       TEXT    NOT NULL,
    limited    INTEGER NOT NULL, -- counts against the limit of waiting user messages
    payload    TEXT,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (thread, seq)
) STRICT, WITHOUT ROWID;

-- Keys outlive their items, so that a repeat is dropped however late it comes.
CREATE TABLE inbox_key (
    thread INTEGER NOT NULL REFERENCES thread (key) ON DELETE CASCADE,
    key    TEXT    NOT NULL,
    seq    INTEGER NOT NULL,
    PRIMARY KEY (thread, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE run (
    thread     INTEGER NOT NULL REFERENCES thread (key) ON DELETE CASCADE,
    id         TEXT    NOT NULL,
    seq        INTEGER NOT NULL, -- of its start
    agent      TEXT    NOT NULL,
    status     TEXT    NOT NULL,
    reason     TEXT    NOT NULL,
    message    TEXT    NOT NULL,
    steps      INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER NOT NULL,
    state      TEXT,
    usage      TEXT,
    PRIMARY KEY (thread, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_seq ON run (thread, seq);

CREATE TABLE kv (
    thread     INTEGER NOT NULL REFERENCES thread (key) ON DELETE CASCADE,
    key        TEXT    NOT NULL,
    value      TEXT    NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (thread, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE file (
    thread     INTEGER NOT NULL REFERENCES thread (key) ON DELETE CASCADE,
    path       TEXT    NOT NULL,
    parent     TEXT    NOT NULL,
    dir        INTEGER NOT NULL,
    mime_type  TEXT    NOT NULL,
    digest     TEXT    NOT NULL,
    size       INTEGER NOT NULL,
    metadata   TEXT,
    width      INTEGER NOT NULL,
    height     INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (thread, parent, path)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX file_path ON file (thread, path);
CREATE INDEX file_digest ON file (digest) WHERE digest <> '';

CREATE TABLE effect_firing (
    effect_id    TEXT    NOT NULL,
    due          INTEGER NOT NULL,
    thread_id    TEXT    NOT NULL,
    namespace    TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    effect       TEXT    NOT NULL,
    args         TEXT,
    status       TEXT    NOT NULL,
    attempts     INTEGER NOT NULL,
    error        TEXT    NOT NULL,
    fired_at     INTEGER NOT NULL,
    ended_at     INTEGER NOT NULL,
    owner        TEXT    NOT NULL,
    available_at INTEGER NOT NULL, -- a claim, or the wait before another attempt, ends then
    PRIMARY KEY (effect_id, due)
) STRICT, WITHOUT ROWID;
CREATE INDEX effect_firing_pending ON effect_firing (available_at) WHERE status = 'pending';
CREATE INDEX effect_firing_thread ON effect_firing (thread_id) WHERE thread_id <> '';

-- One row that is written to find out whether writing works.
CREATE TABLE probe (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    written_at INTEGER NOT NULL
) STRICT;
INSERT INTO probe (id, written_at) VALUES (1, 0);

-- +goose Down
DROP TABLE probe;
DROP TABLE effect_firing;
DROP TABLE file;
DROP TABLE kv;
DROP TABLE run;
DROP TABLE inbox_key;
DROP TABLE inbox;
DROP TABLE log;
DROP TABLE message;
DROP TABLE lease;
DROP TABLE thread_head;
DROP TABLE thread;
