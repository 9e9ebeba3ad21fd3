-- How many bytes the messages of a thread have, so that the sum of a namespace is known without the messages. Triggers keep it, whichever
-- release writes the messages. Messages that were there before are counted later, a few at a time.

-- +goose Up
-- Each row counts the messages of one thread with 512 sequence numbers: those after the migration in the row with the part seq / 512, and
-- those from before it in the row with the part -1 - seq / 512, which no trigger writes.
CREATE TABLE message_usage (
    thread    INTEGER NOT NULL,
    part      INTEGER NOT NULL,
    namespace TEXT    NOT NULL,
    bytes     INTEGER NOT NULL, -- less than 0 where more was removed than added since the migration
    PRIMARY KEY (thread, part)
) STRICT, WITHOUT ROWID;
CREATE INDEX message_usage_namespace ON message_usage (namespace, bytes);
-- Up to which message those from before are counted, and the last thread that had any. There is no row once all are.
CREATE TABLE message_usage_fill (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    thread  INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    through INTEGER NOT NULL
) STRICT;
-- The namespace is that of the rows that the thread has already: what forks read of a thread that is gone has none of its own.
-- +goose StatementBegin
CREATE TRIGGER message_bytes_added AFTER INSERT ON message
BEGIN
    INSERT INTO message_usage (thread, part, namespace, bytes)
        SELECT new.thread, new.seq / 512, o.namespace, coalesce(octet_length(new.content), 0) + coalesce(octet_length(new.rest), 0)
        FROM (SELECT coalesce((SELECT u.namespace FROM message_usage u WHERE u.thread = new.thread LIMIT 1),
            (SELECT t.namespace FROM thread t WHERE t.key = new.thread)) AS namespace) o WHERE o.namespace <> ''
        ON CONFLICT (thread, part) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER message_bytes_changed AFTER UPDATE OF content, rest ON message WHEN old.thread = new.thread
    AND coalesce(octet_length(old.content), 0) + coalesce(octet_length(old.rest), 0) <> coalesce(octet_length(new.content), 0) + coalesce(octet_length(new.rest), 0)
BEGIN
    INSERT INTO message_usage (thread, part, namespace, bytes)
        SELECT new.thread, new.seq / 512, o.namespace, coalesce(octet_length(new.content), 0) + coalesce(octet_length(new.rest), 0)
            - coalesce(octet_length(old.content), 0) - coalesce(octet_length(old.rest), 0)
        FROM (SELECT coalesce((SELECT u.namespace FROM message_usage u WHERE u.thread = new.thread LIMIT 1),
            (SELECT t.namespace FROM thread t WHERE t.key = new.thread)) AS namespace) o WHERE o.namespace <> ''
        ON CONFLICT (thread, part) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER message_bytes_moved AFTER UPDATE OF thread ON message WHEN old.thread <> new.thread
BEGIN
    INSERT INTO message_usage (thread, part, namespace, bytes)
        SELECT r.thread, new.seq / 512, o.namespace, r.sign * (coalesce(octet_length(new.content), 0) + coalesce(octet_length(new.rest), 0))
        FROM (SELECT old.thread AS thread, -1 AS sign UNION ALL SELECT new.thread, 1) r,
            (SELECT coalesce((SELECT u.namespace FROM message_usage u WHERE u.thread = old.thread LIMIT 1),
            (SELECT t.namespace FROM thread t WHERE t.key = old.thread)) AS namespace) o WHERE o.namespace <> ''
        ON CONFLICT (thread, part) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER message_bytes_removed AFTER DELETE ON message
BEGIN
    INSERT INTO message_usage (thread, part, namespace, bytes)
        SELECT old.thread, old.seq / 512, o.namespace, -(coalesce(octet_length(old.content), 0) + coalesce(octet_length(old.rest), 0))
        FROM (SELECT coalesce((SELECT u.namespace FROM message_usage u WHERE u.thread = old.thread LIMIT 1),
            (SELECT t.namespace FROM thread t WHERE t.key = old.thread)) AS namespace) o WHERE o.namespace <> ''
        ON CONFLICT (thread, part) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
-- +goose StatementEnd
INSERT INTO message_usage_fill (id, thread, seq, through) SELECT 1, 0, 0, max(key) FROM thread HAVING max(key) IS NOT NULL;

-- +goose Down
DROP TRIGGER message_bytes_removed;
DROP TRIGGER message_bytes_moved;
DROP TRIGGER message_bytes_changed;
DROP TRIGGER message_bytes_added;
DROP TABLE message_usage_fill;
DROP TABLE message_usage;
