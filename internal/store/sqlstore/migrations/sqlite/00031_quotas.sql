-- Quotas of namespaces (SPEC K8S-11): which leases count as running threads, how much is stored, what was used on a day.

-- +goose Up
-- What a thread waits for because its namespace has used up a quota.
ALTER TABLE thread ADD COLUMN waits TEXT NOT NULL DEFAULT '';

-- The namespace while the holder counts as a running thread.
ALTER TABLE lease ADD COLUMN running_in TEXT;
CREATE INDEX lease_running ON lease (running_in, expires_at) WHERE running_in IS NOT NULL;

-- The bytes of a namespace are summed over this index.
ALTER TABLE file_usage ADD COLUMN namespace TEXT NOT NULL DEFAULT '';
UPDATE file_usage SET namespace = COALESCE((SELECT t.namespace FROM thread t WHERE t.key = file_usage.thread), '');
CREATE INDEX file_usage_namespace ON file_usage (namespace, bytes);

-- Each row is locked while something of its namespace is counted against a quota.
CREATE TABLE quota_namespace (
    namespace TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- Objects that are about to be created, until every replica's cache has shown them.
CREATE TABLE quota_claim (
    namespace  TEXT NOT NULL,
    resource   TEXT NOT NULL,
    name       TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (namespace, resource, name)
) STRICT, WITHOUT ROWID;

-- What threads used on a day, which is a number of days since 1970 in UTC. It stays when the thread is purged.
CREATE TABLE quota_day (
    namespace TEXT NOT NULL,
    day       INTEGER NOT NULL,
    thread_id TEXT NOT NULL,
    tokens    INTEGER NOT NULL,
    cost      INTEGER NOT NULL, -- in billionths of a US dollar
    PRIMARY KEY (namespace, day, thread_id)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE quota_day;
DROP TABLE quota_claim;
DROP TABLE quota_namespace;
DROP INDEX file_usage_namespace;
ALTER TABLE file_usage DROP COLUMN namespace;
DROP INDEX lease_running;
ALTER TABLE lease DROP COLUMN running_in;
ALTER TABLE thread DROP COLUMN waits;
