-- The texts of messages, to be searched. Appending a message does not touch this: whoever searches first brings in
-- what is new, by the keys of messages, and what was changed or removed since.

-- +goose Up
CREATE VIRTUAL TABLE message_text USING fts5 (content, content = '', contentless_delete = 1, tokenize = 'unicode61 remove_diacritics 0');
CREATE TABLE message_text_state (
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    done INTEGER NOT NULL -- messages up to this key are in message_text, but for those in message_text_stale
) STRICT;
INSERT INTO message_text_state (id, done) VALUES (1, 0);
CREATE TABLE message_text_stale (key INTEGER PRIMARY KEY) STRICT;
-- +goose StatementBegin
CREATE TRIGGER message_text_changed AFTER UPDATE OF content ON message WHEN old.key <= (SELECT done FROM message_text_state)
BEGIN
    INSERT INTO message_text_stale (key) VALUES (old.key) ON CONFLICT DO NOTHING;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER message_text_removed AFTER DELETE ON message WHEN old.key <= (SELECT done FROM message_text_state)
BEGIN
    INSERT INTO message_text_stale (key) VALUES (old.key) ON CONFLICT DO NOTHING;
END;
-- +goose StatementEnd

-- +goose Down
DROP TRIGGER message_text_removed;
DROP TRIGGER message_text_changed;
DROP TABLE message_text_stale;
DROP TABLE message_text_state;
DROP TABLE message_text;
