-- How many bytes the messages of a thread have, so that the sum of a namespace is known without the messages. Triggers keep it, whichever
-- release writes the messages. Messages that were there before are counted later, a few at a time: counting them here would keep others
-- from writing messages.

-- +goose Up
-- Each row counts the messages of one thread with 512 sequence numbers: those after the migration in the row with the part seq / 512, and
-- those from before it in the row with the part -1 - seq / 512, which no trigger writes. A transaction that writes many messages leaves
-- one version of a row for each message, and passes them all when it writes the next one. So a row is for few messages.
CREATE TABLE message_usage (
    thread    BIGINT NOT NULL,
    part      BIGINT NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    bytes     BIGINT NOT NULL, -- less than 0 where more was removed than added since the migration
    PRIMARY KEY (thread, part)
) WITH (fillfactor = 50); -- room on the pages keeps an update on its page, away from the indexes
CREATE INDEX message_usage_namespace ON message_usage (namespace);
-- Up to which message those from before are counted, and the last thread that had any. There is no row once all are.
CREATE TABLE message_usage_fill (
    id      BIGINT PRIMARY KEY CHECK (id = 1),
    thread  BIGINT NOT NULL,
    seq     BIGINT NOT NULL,
    through BIGINT NOT NULL
);
-- The namespace of a thread's messages is that of the rows that it has already: what forks read of a thread that is gone has none of its own.
-- +goose StatementBegin
CREATE FUNCTION message_namespace(a_thread BIGINT) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce((SELECT u.namespace FROM message_usage u WHERE u.thread = a_thread LIMIT 1), (SELECT t.namespace FROM thread t WHERE t.key = a_thread))
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION message_bytes(content TEXT, rest TEXT) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CAST(coalesce(octet_length(content), 0) AS BIGINT) + coalesce(octet_length(rest), 0)
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION add_message_bytes(a_thread BIGINT, a_seq BIGINT, n BIGINT, a_namespace TEXT) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE message_usage u SET bytes = u.bytes + n WHERE u.thread = a_thread AND u.part = a_seq / 512;
    IF FOUND THEN
        RETURN;
    END IF;
    a_namespace := coalesce(a_namespace, message_namespace(a_thread));
    IF a_namespace <> '' THEN
        INSERT INTO message_usage (thread, part, namespace, bytes) VALUES (a_thread, a_seq / 512, a_namespace, n)
            ON CONFLICT (thread, part) DO UPDATE SET bytes = message_usage.bytes + excluded.bytes;
    END IF;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION message_bytes_turned() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    owner TEXT;
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM add_message_bytes(NEW.thread, NEW.seq, message_bytes(NEW.content, NEW.rest), NULL);
    ELSIF OLD.thread = NEW.thread THEN
        PERFORM add_message_bytes(NEW.thread, NEW.seq, message_bytes(NEW.content, NEW.rest) - message_bytes(OLD.content, OLD.rest), NULL);
    ELSE
        owner := message_namespace(OLD.thread);
        PERFORM add_message_bytes(OLD.thread, OLD.seq, -message_bytes(OLD.content, OLD.rest), owner);
        PERFORM add_message_bytes(NEW.thread, NEW.seq, message_bytes(NEW.content, NEW.rest), owner);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION message_bytes_removed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM add_message_bytes(r.thread, r.seq, -r.bytes, NULL)
        FROM (SELECT thread, min(seq) AS seq, CAST(sum(message_bytes(content, rest)) AS BIGINT) AS bytes FROM removed GROUP BY thread, seq / 512) r;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER message_bytes_added AFTER INSERT ON message FOR EACH ROW EXECUTE FUNCTION message_bytes_turned();
CREATE TRIGGER message_bytes_changed AFTER UPDATE OF thread, content, rest ON message FOR EACH ROW
    WHEN (OLD.thread <> NEW.thread OR octet_length(OLD.content) IS DISTINCT FROM octet_length(NEW.content) OR octet_length(OLD.rest) IS DISTINCT FROM octet_length(NEW.rest))
    EXECUTE FUNCTION message_bytes_turned();
CREATE TRIGGER message_bytes_removed AFTER DELETE ON message REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION message_bytes_removed();
-- Now no other transaction is writing messages, until this one ends: threads that are made later have none that the triggers do not count.
INSERT INTO message_usage_fill (id, thread, seq, through) SELECT 1, 0, 0, max(key) FROM thread HAVING max(key) IS NOT NULL;

-- +goose Down
DROP TRIGGER message_bytes_removed ON message;
DROP TRIGGER message_bytes_changed ON message;
DROP TRIGGER message_bytes_added ON message;
DROP FUNCTION message_bytes_removed;
DROP FUNCTION message_bytes_turned;
DROP FUNCTION add_message_bytes;
DROP FUNCTION message_bytes;
DROP FUNCTION message_namespace;
DROP TABLE message_usage_fill;
DROP TABLE message_usage;
