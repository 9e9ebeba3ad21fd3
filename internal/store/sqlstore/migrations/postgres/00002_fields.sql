-- The fields of a thread that people change (archived, draft, mode, skills, workspace, …), what lists show of
-- it, how it is found, and the results of writes that may be repeated under their key.

-- +goose Up
ALTER TABLE thread ADD COLUMN archived_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE thread ADD COLUMN fields TEXT; -- JSON of the fields that most threads do not have
CREATE INDEX thread_name ON thread (name);
CREATE INDEX thread_short ON thread (substr(id, 25));
CREATE INDEX thread_agent ON thread (agent);
CREATE INDEX thread_user ON thread (user_id) WHERE user_id <> '';
CREATE INDEX thread_task ON thread (task_id) WHERE task_id <> '';

-- archived is that of the thread, where the order of lists is. appended is how many messages there ever were.
ALTER TABLE thread_head ADD COLUMN archived BIGINT NOT NULL DEFAULT 0;
ALTER TABLE thread_head ADD COLUMN appended BIGINT NOT NULL DEFAULT 0;
ALTER TABLE thread_head ADD COLUMN user_activity_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE thread_head ADD COLUMN files_added BIGINT NOT NULL DEFAULT 0;
ALTER TABLE thread_head ADD COLUMN files_changed BIGINT NOT NULL DEFAULT 0;
ALTER TABLE thread_head ADD COLUMN files_removed BIGINT NOT NULL DEFAULT 0;
UPDATE thread_head SET
    appended = (SELECT count(*) FROM message m WHERE m.thread = thread_head.thread)
        + (SELECT count(*) FROM log l WHERE l.thread = thread_head.thread AND l.type = 'message.created'),
    user_activity_at = COALESCE((SELECT max(m.created_at) FROM message m WHERE m.thread = thread_head.thread AND m.role = 'user'), 0),
    files_added = (SELECT count(*) FROM file f WHERE f.thread = thread_head.thread AND f.dir = 0);
DROP INDEX thread_head_activity;
DROP INDEX thread_head_namespace_activity;
CREATE INDEX thread_head_activity ON thread_head (archived, activity_second);
CREATE INDEX thread_head_namespace_activity ON thread_head (namespace, archived, activity_second);

CREATE TABLE idempotency (
    thread      BIGINT NOT NULL REFERENCES thread (key) ON DELETE CASCADE,
    key         TEXT COLLATE "C" NOT NULL,
    fingerprint TEXT COLLATE "C" NOT NULL, -- of the request
    result      TEXT,             -- JSON of what the first one gave
    created_at  BIGINT NOT NULL,
    PRIMARY KEY (thread, key)
);
CREATE INDEX idempotency_age ON idempotency (created_at);

-- +goose Down
DROP TABLE idempotency;
DROP INDEX thread_head_namespace_activity;
DROP INDEX thread_head_activity;
CREATE INDEX thread_head_activity ON thread_head (activity_second);
CREATE INDEX thread_head_namespace_activity ON thread_head (namespace, activity_second);
ALTER TABLE thread_head DROP COLUMN files_removed;
ALTER TABLE thread_head DROP COLUMN files_changed;
ALTER TABLE thread_head DROP COLUMN files_added;
ALTER TABLE thread_head DROP COLUMN user_activity_at;
ALTER TABLE thread_head DROP COLUMN appended;
ALTER TABLE thread_head DROP COLUMN archived;
DROP INDEX thread_task;
DROP INDEX thread_user;
DROP INDEX thread_agent;
DROP INDEX thread_short;
DROP INDEX thread_name;
ALTER TABLE thread DROP COLUMN fields;
ALTER TABLE thread DROP COLUMN archived_at;
