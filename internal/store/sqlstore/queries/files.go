package queries

import (
	"strings"
)

// ContentsAtOnce is how many contents one query names. The number is constant, so that the query is prepared once.
const ContentsAtOnce = 200

// ObjectsAtOnce is how many objects of the bucket one query names.
const ObjectsAtOnce = 500

var someContents, someObjects = parameters(ContentsAtOnce), parameters(ObjectsAtOnce)

func parameters(n int) string { return `(` + strings.TrimSuffix(strings.Repeat("?, ", n), ", ") + `)` }

// Queries that say of objects of the bucket which of them contents have, and which were without before.
var (
	ObjectsInUse = `SELECT object FROM contents WHERE object IN ` + someObjects + ` AND size >= 0`
	OrphansSeen  = `SELECT object, seen_at FROM orphan_object WHERE object IN ` + someObjects
)

// Queries that free the contents which no file refers to any more, as files.freeContents does one by one.
var (
	UseSomeContents  = `UPDATE contents SET used_at = ? WHERE digest IN ` + someContents
	FreeSomeContents = `DELETE FROM contents WHERE digest IN ` + someContents + `
		AND NOT EXISTS (SELECT 1 FROM file f WHERE f.digest = contents.digest AND f.digest <> '') RETURNING object`
)

// Files.
const (
	FileColumns = beforeMetadata + `f.metadata` + afterMetadata
	FromFiles   = ` FROM file f JOIN thread t ON t.key = f.thread`

	beforeMetadata = `f.path, f.dir, f.mime_type, f.digest, f.size, `
	afterMetadata  = `, f.width, f.height, f.created_at`

	File        = `SELECT ` + FileColumns + FromFiles + ` WHERE t.id = ? AND f.path = ?`
	FilesDirect = `SELECT ` + FileColumns + FromFiles + ` WHERE t.id = ? AND f.parent = ? ORDER BY f.path`
	FilesBelow  = `SELECT ` + FileColumns + FromFiles + ` WHERE t.id = ? AND f.path > ? AND f.path < ? ORDER BY f.path`

	// A page has an empty text for metadata of more than 2 KiB. What is stored is never empty. So a page of rows has a bound, and long
	// metadata is read apart.
	filePage    = beforeMetadata + `CASE WHEN octet_length(f.metadata) > 2048 THEN '' ELSE f.metadata END` + afterMetadata + FromFiles
	barePage    = beforeMetadata + `CAST(NULL AS TEXT)` + afterMetadata + FromFiles
	onPage      = ` ORDER BY f.path LIMIT ? OFFSET ?`
	PageDirect  = `SELECT ` + filePage + directAfter
	PageBelow   = `SELECT ` + filePage + below
	BareDirect  = `SELECT ` + barePage + directAfter
	BareBelow   = `SELECT ` + barePage + below
	directAfter = ` WHERE t.id = ? AND f.parent = ? AND f.path > ?` + onPage
	below       = ` WHERE t.id = ? AND f.path > ? AND f.path < ?` + onPage

	FileBefore   = `SELECT dir, digest, size FROM file WHERE thread = ? AND path = ?`
	FolderFilled = `SELECT 1 FROM file WHERE thread = ? AND parent = ? LIMIT 1`
	PutFile      = `INSERT INTO file (thread, path, parent, dir, mime_type, digest, size, metadata, width, height, created_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (thread, parent, path) DO UPDATE SET mime_type = excluded.mime_type, digest = excluded.digest, size = excluded.size,
			metadata = excluded.metadata, width = excluded.width, height = excluded.height, created_at = excluded.created_at`
	DeleteFile = `DELETE FROM file WHERE thread = ? AND path = ?`
	DigestUsed = `SELECT 1 FROM file WHERE digest = ? AND digest <> '' LIMIT 1`

	Contents     = `SELECT object FROM contents WHERE digest = ?`
	UseContents  = `UPDATE contents SET used_at = ? WHERE digest = ? RETURNING object`
	KeepContents = `INSERT INTO contents (digest, object, size, used_at) VALUES (?, ?, ?, ?)
		ON CONFLICT DO NOTHING RETURNING object`
	ReplaceObject = `UPDATE contents SET object = ? WHERE digest = ?`
	DropContents  = `DELETE FROM contents WHERE digest = ?`
	ObjectSize    = `SELECT size FROM contents WHERE object = ?`
	// A row with a digest that no contents have reserves the object's name, so that nothing can refer to the object any
	// more.
	SweepContents = `INSERT INTO contents (digest, object, size, used_at) VALUES ('swept ' || ?, ?, -1, ?) ON CONFLICT DO NOTHING`
	ForgetSwept   = `DELETE FROM contents WHERE size < 0 AND used_at < ?`
	NoteOrphan    = `INSERT INTO orphan_object (object, seen_at) VALUES (?, ?) ON CONFLICT (object) DO NOTHING`
	Orphan        = `SELECT 1 FROM orphan_object WHERE object = ?`
	DropOrphan    = `DELETE FROM orphan_object WHERE object = ?`

	FileUsage  = `SELECT u.files, u.folders, u.bytes, u.max_bytes, u.max_files FROM file_usage u JOIN thread t ON t.key = u.thread WHERE t.id = ?`
	CountFiles = `INSERT INTO file_usage (thread, namespace, files, folders, bytes) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (thread) DO UPDATE SET namespace = excluded.namespace, files = file_usage.files + excluded.files, folders = file_usage.folders + excluded.folders,
			bytes = file_usage.bytes + excluded.bytes
		RETURNING files, folders, bytes, max_bytes, max_files`
	SetFileQuota = `INSERT INTO file_usage (thread, namespace, files, folders, bytes, max_bytes, max_files) VALUES (?, ?, 0, 0, 0, ?, ?)
		ON CONFLICT (thread) DO UPDATE SET max_bytes = excluded.max_bytes, max_files = excluded.max_files`
)
