package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// A backup is a tar archive, compressed with gzip: the keys, if it has them; for each namespace its objects, rows and contents of files;
// the manifest, last.
const (
	backupFormat = "skein.dev/backup/v1"
	manifestFile = "manifest.json"
	keysFile     = "keys.json"
	// maxSmallFile bounds what is read into memory: objects, rows, the manifest.
	maxSmallFile = runtimev1.MaxRestoreRowsBytes
)

func objectsFolder(ns string) string { return "namespaces/" + ns + "/objects/" }
func dataFolder(ns string) string    { return "namespaces/" + ns + "/data/" }

// backupManifest says what a backup has.
type backupManifest struct {
	Format     string            `json:"format"`
	ID         string            `json:"id"`
	CreatedAt  time.Time         `json:"createdAt"`
	Keys       bool              `json:"keys"`
	Namespaces []backupNamespace `json:"namespaces"`
	// Digest is over the names and the SHA-256 of all files before the manifest, in their order.
	Digest string `json:"digest"`
}

type backupNamespace struct {
	Name    string                   `json:"name"`
	Objects int                      `json:"objects"`
	Summary *runtimev1.BackupSummary `json:"summary"`
}

// digestedTar writes files and keeps a digest of them.
type digestedTar struct {
	tar *tar.Writer
	at  time.Time
	all hash.Hash
}

func newDigestedTar(t *tar.Writer, at time.Time) *digestedTar {
	return &digestedTar{tar: t, at: at, all: sha256.New()}
}

func (d *digestedTar) file(name string, data []byte) error {
	return d.copy(name, int64(len(data)), bytes.NewReader(data))
}

func (d *digestedTar) copy(name string, size int64, r io.Reader) error {
	if err := d.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: d.at, Format: tar.FormatPAX}); err != nil {
		return err
	}
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(d.tar, sum), r, size); err != nil {
		return err
	}
	note(d.all, sum, name)
	return nil
}

func note(all, sum hash.Hash, name string) {
	fmt.Fprintf(all, "%s  %s\n", hex.EncodeToString(sum.Sum(nil)), name)
}

func (d *digestedTar) digest() string { return "sha256:" + hex.EncodeToString(d.all.Sum(nil)) }

// openedBackup is a backup that was read once from end to end, and is whole.
type openedBackup struct {
	path     string
	manifest backupManifest
	keys     []byte
	objects  map[string]map[string][]byte // by namespace and name of the file
	threads  map[string][]string          // the ids of threads by namespace
	living   map[string]int64             // how many of them were not retained
	// counted, if there is one, gets the file as it is read.
	counted func(*os.File) io.Reader
}

var errNotWhole = errors.New("the backup is incomplete or damaged: use another one")

// openBackup reads a backup and checks that it is whole and unchanged. It keeps the objects in memory, and no rows.
func openBackup(path, digest string) (*openedBackup, error) {
	b := &openedBackup{path: path, objects: map[string]map[string][]byte{}, threads: map[string][]string{}, living: map[string]int64{}}
	seen := false
	have, err := b.digested(func(name string, size int64, r io.Reader) error {
		if seen {
			return errNotWhole // nothing follows the manifest
		}
		if name == manifestFile {
			seen = true
			data, err := io.ReadAll(io.LimitReader(r, maxSmallFile))
			if err != nil {
				return err
			}
			if err := json.Unmarshal(data, &b.manifest); err != nil {
				return errNotWhole
			}
			if slices.ContainsFunc(b.manifest.Namespaces, func(n backupNamespace) bool { return n.Summary == nil }) {
				return errNotWhole
			}
			return nil
		}
		return b.keep(name, size, r)
	})
	switch {
	case err != nil:
		return nil, err
	case !seen:
		return nil, errNotWhole
	case b.manifest.Format != backupFormat:
		return nil, fmt.Errorf("the backup has the format %q, and this plugin reads %q: use the plugin of the release that made it, or a later one", b.manifest.Format, backupFormat)
	case have != b.manifest.Digest:
		return nil, errNotWhole
	case digest != "" && digest != have:
		return nil, fmt.Errorf("the backup has the digest %s, not %s: it is another backup, or it was changed", have, digest)
	}
	return b, nil
}

// digested calls fn for each file of the archive, and returns the digest of all but the manifest.
func (b *openedBackup) digested(fn func(name string, size int64, r io.Reader) error) (string, error) {
	all := sha256.New()
	err := b.each(func(name string, size int64, r io.Reader) error {
		if name == manifestFile {
			return fn(name, size, r)
		}
		sum := sha256.New()
		in := io.TeeReader(r, sum)
		if err := fn(name, size, in); err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, in); err != nil {
			return err
		}
		note(all, sum, name)
		return nil
	})
	return "sha256:" + hex.EncodeToString(all.Sum(nil)), err
}

// errChanged reports that the file is not the one that openBackup read.
var errChanged = errors.New("the file of the backup was changed while it was restored, and none of its data is visible: repeat the command " +
	"with --abandon and the backup as it was, then restore that")

// unchanged calls fn for each file of the archive, which must be the one that openBackup read.
func (b *openedBackup) unchanged(fn func(name string, size int64, r io.Reader) error) error {
	have, err := b.digested(fn)
	if err == nil && have != b.manifest.Digest {
		return errChanged
	}
	return err
}

// keep keeps what of a file is needed before the rows are sent.
func (b *openedBackup) keep(name string, size int64, r io.Reader) error {
	parts := strings.SplitN(name, "/", 4)
	wanted := name == keysFile || len(parts) == 4 && (parts[2] == "objects" || strings.HasPrefix(parts[3], runtimev1.BackupRowsPrefix))
	if !wanted {
		return nil
	}
	if size > maxSmallFile {
		return fmt.Errorf("%s has %d bytes, which is too much: the backup is damaged", name, size)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	switch {
	case name == keysFile:
		b.keys = data
	case parts[2] == "objects":
		if b.objects[parts[1]] == nil {
			b.objects[parts[1]] = map[string][]byte{}
		}
		b.objects[parts[1]][parts[3]] = data
	default:
		for line := range bytes.Lines(data) {
			var row struct {
				Table string `json:"table"`
				Row   struct {
					ID       string `json:"id"`
					Retained int64  `json:"retained_at"`
				} `json:"row"`
			}
			if bytes.HasPrefix(line, []byte(`{"table":"thread",`)) && json.Unmarshal(line, &row) == nil && !strings.HasPrefix(row.Row.ID, "left:") {
				b.threads[parts[1]] = append(b.threads[parts[1]], row.Row.ID)
				if row.Row.Retained == 0 {
					b.living[parts[1]]++
				}
			}
		}
	}
	return nil
}

// checkedReader reads a file of an archive. Whatever keeps the file from being decompressed is errNotWhole.
type checkedReader struct{ archive io.Reader }

func (r checkedReader) Read(p []byte) (int, error) {
	n, err := r.archive.Read(p)
	var disk *fs.PathError
	if err != nil && err != io.EOF && !errors.As(err, &disk) {
		err = errNotWhole
	}
	return n, err
}

// each calls fn for each file of the archive.
func (b *openedBackup) each(fn func(name string, size int64, r io.Reader) error) error {
	f, err := os.Open(b.path)
	if err != nil {
		return err
	}
	defer f.Close()
	var from io.Reader = f
	if b.counted != nil {
		from = b.counted(f)
	}
	zip, err := gzip.NewReader(from)
	if err != nil {
		return fmt.Errorf("%s is not a backup: it is not compressed with gzip", b.path)
	}
	in := tar.NewReader(zip)
	for {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return errNotWhole
		}
		if err := fn(head.Name, head.Size, checkedReader{in}); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, zip); err != nil { // the checksum at the end
		return errNotWhole
	}
	return nil
}
