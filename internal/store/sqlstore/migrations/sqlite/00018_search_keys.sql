-- SQLite gives the key of the newest message again once that message is removed. The index of texts forgets such keys, so that
-- the message that gets one is new to it. An index made before may lack messages, so it is built anew by the next search.

-- +goose Up
DROP TRIGGER message_text_removed;
-- +goose StatementBegin
CREATE TRIGGER message_text_removed AFTER DELETE ON message
    WHEN old.key <= (SELECT done FROM message_text_state) OR (SELECT done > (SELECT COALESCE(max(key), 0) FROM message) FROM message_text_state)
BEGIN
    INSERT INTO message_text_stale (key) SELECT old.key FROM message_text_state WHERE old.key <= done ON CONFLICT DO NOTHING;
    UPDATE message_text_state SET done = (SELECT COALESCE(max(key), 0) FROM message)
        WHERE done > (SELECT COALESCE(max(key), 0) FROM message);
END;
-- +goose StatementEnd
INSERT INTO message_text (message_text) VALUES ('delete-all');
DELETE FROM message_text_stale;
UPDATE message_text_state SET done = 0;

-- +goose Down
DROP TRIGGER message_text_removed;
-- +goose StatementBegin
CREATE TRIGGER message_text_removed AFTER DELETE ON message WHEN old.key <= (SELECT done FROM message_text_state)
BEGIN
    INSERT INTO message_text_stale (key) VALUES (old.key) ON CONFLICT DO NOTHING;
END;
-- +goose StatementEnd
