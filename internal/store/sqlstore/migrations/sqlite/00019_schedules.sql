-- Firings of schedules: several threads at one due time, an epoch that fences their holders, what is to be done as it was when the
-- firing was recorded; how far each schedule has come, which due times did not fire, and the arguments that code gave.

-- +goose Up
CREATE TABLE effect_firing_new (
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
    hook_depth   INTEGER NOT NULL DEFAULT 0,
    epoch        INTEGER NOT NULL DEFAULT 0, -- rises with each claim
    origin       TEXT    NOT NULL DEFAULT '',
    target       TEXT,
    waiting      TEXT    NOT NULL DEFAULT '', -- what it waits for, which is no attempt
    started_at   INTEGER NOT NULL DEFAULT 0,
    cost         REAL    NOT NULL DEFAULT 0,
    log          TEXT    NOT NULL DEFAULT '', -- what its code wrote, when no thread has it
    PRIMARY KEY (effect_id, due, thread_id)
) STRICT, WITHOUT ROWID;
INSERT INTO effect_firing_new (effect_id, due, thread_id, namespace, name, effect, args, status, attempts, error, fired_at, ended_at, owner,
        available_at, hook_depth, epoch)
    SELECT effect_id, due, thread_id, namespace, name, effect, args, status, attempts, error, fired_at, ended_at, owner, available_at, hook_depth, attempts
    FROM effect_firing;
DROP TABLE effect_firing;
ALTER TABLE effect_firing_new RENAME TO effect_firing;
CREATE INDEX effect_firing_pending ON effect_firing (available_at) WHERE status = 'pending';
CREATE INDEX effect_firing_thread ON effect_firing (thread_id) WHERE thread_id <> '';
CREATE INDEX effect_firing_active ON effect_firing (effect_id) WHERE status IN ('pending', 'queued', 'running');

CREATE TABLE effect_schedule (
    effect_id   TEXT NOT NULL PRIMARY KEY,
    namespace   TEXT NOT NULL,
    name        TEXT NOT NULL,
    fingerprint TEXT NOT NULL, -- of the schedule that the cursor belongs to
    cursor      INTEGER NOT NULL, -- all due times up to it have been dealt with
    fired       INTEGER NOT NULL, -- due times that fired
    failures    INTEGER NOT NULL, -- in a row
    skipped     INTEGER NOT NULL, -- due times that did not fire
    day         TEXT NOT NULL, -- to which day_fired belongs
    day_fired   INTEGER NOT NULL,
    removed     INTEGER NOT NULL, -- nothing fires any more
    updated_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE effect_skip (
    effect_id   TEXT NOT NULL,
    due         INTEGER NOT NULL, -- the first due time
    until       INTEGER NOT NULL, -- the last due time
    thread_id   TEXT NOT NULL,
    count       INTEGER NOT NULL,
    reason      TEXT NOT NULL,
    detail      TEXT NOT NULL,
    recorded_at INTEGER NOT NULL,
    PRIMARY KEY (effect_id, due, thread_id, reason)
) STRICT, WITHOUT ROWID;

CREATE TABLE effect_args (
    id         TEXT NOT NULL PRIMARY KEY,
    thread_id  TEXT NOT NULL,
    args       TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX effect_args_thread ON effect_args (thread_id);

-- +goose Down
DROP TABLE effect_args;
DROP TABLE effect_skip;
DROP TABLE effect_schedule;
DROP INDEX effect_firing_active;
DELETE FROM effect_firing WHERE status IN ('queued', 'running', 'canceled') OR EXISTS (SELECT 1 FROM effect_firing o
    WHERE o.effect_id = effect_firing.effect_id AND o.due = effect_firing.due AND o.thread_id < effect_firing.thread_id);
CREATE TABLE effect_firing_old (
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
    available_at INTEGER NOT NULL,
    hook_depth   INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (effect_id, due)
) STRICT, WITHOUT ROWID;
INSERT INTO effect_firing_old SELECT effect_id, due, thread_id, namespace, name, effect, args, status, attempts, error, fired_at, ended_at, owner,
    available_at, hook_depth FROM effect_firing;
DROP TABLE effect_firing;
ALTER TABLE effect_firing_old RENAME TO effect_firing;
CREATE INDEX effect_firing_pending ON effect_firing (available_at) WHERE status = 'pending';
CREATE INDEX effect_firing_thread ON effect_firing (thread_id) WHERE thread_id <> '';
