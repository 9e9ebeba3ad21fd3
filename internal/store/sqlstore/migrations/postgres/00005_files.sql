-- +goose Up
-- Which object of the bucket has the contents of a digest. A row of file and the row here are written in one
-- transaction, and so are their ends: an object is removed from the bucket only after its row here has gone,
-- and no object is ever written under a name that was used before.
CREATE TABLE contents (
    digest  TEXT NOT NULL PRIMARY KEY,
    object  TEXT NOT NULL UNIQUE,
    size    BIGINT NOT NULL, -- -1: swept, nothing may come to refer to the object any more
    used_at BIGINT NOT NULL -- when a file last came to refer to it; writing it locks the row
);
CREATE INDEX contents_swept ON contents (used_at) WHERE size < 0;
INSERT INTO contents (digest, object, size, used_at)
    SELECT digest, 'blobs/' || substr(digest, 1, 2) || '/' || substr(digest, 3), max(size), max(created_at)
    FROM file WHERE digest <> '' GROUP BY digest;

-- Objects that a sweep found in the bucket without contents: removed by a later sweep unless they got some.
CREATE TABLE orphan_object (
    object  TEXT NOT NULL PRIMARY KEY,
    seen_at BIGINT NOT NULL
);

-- How much a thread has in files, and how much it may have: NULL leaves it to the manager, 0 is without bound.
CREATE TABLE file_usage (
    thread    BIGINT NOT NULL PRIMARY KEY REFERENCES thread (key) ON DELETE CASCADE,
    files     BIGINT NOT NULL,
    folders   BIGINT NOT NULL,
    bytes     BIGINT NOT NULL,
    max_bytes BIGINT,
    max_files BIGINT
);
INSERT INTO file_usage (thread, files, folders, bytes)
    SELECT thread, sum(CASE WHEN dir = 0 THEN 1 ELSE 0 END), sum(CASE WHEN dir = 0 THEN 0 ELSE 1 END), sum(size)
    FROM file GROUP BY thread;

-- +goose Down
DROP TABLE file_usage;
DROP TABLE orphan_object;
DROP TABLE contents;
