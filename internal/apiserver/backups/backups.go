// Package backups serves backups and restores of namespaces, and the adoption of threads whose object is gone (K8S-09).
package backups

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

const (
	// atOnce is how many backups are read at the same time. Each keeps a connection to the database.
	atOnce = 2
	// pieceBytes is the least size of a file with rows, but for the last.
	pieceBytes  = 1 << 20
	busySeconds = 10
	// contentsBytes is about how much memory it takes to receive or send the contents of a file. backupBytes is about how much a backup
	// takes, which also has a growing buffer of encoded rows.
	contentsBytes = 1 << 20
	backupBytes   = contentsBytes + 4*pieceBytes
)

// Backups serves backups.
type Backups struct {
	Threads *thread.Service
	// TransferTimeout bounds one piece of a backup.
	TransferTimeout time.Duration

	slots chan struct{}
}

// NewBackups returns the handler.
func NewBackups(threads *thread.Service, transferTimeout time.Duration) *Backups {
	return &Backups{Threads: threads, TransferTimeout: transferTimeout, slots: make(chan struct{}, atOnce)}
}

// Read answers GET backups: it streams everything that is stored of a namespace. Its rows are read at one moment.
func (h *Backups) Read(c *call.Call) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	q.Text("watch") // API servers give a watch time
	if err := q.Check(); err != nil {
		return err
	}
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		return apierrors.NewTooManyRequests(fmt.Sprintf("%d backups are being made: try again when one has ended", atOnce), busySeconds)
	}
	if err := membudget.From(c.Context()).Draw(c.Context(), backupBytes); err != nil {
		return err
	}
	b, err := h.Threads.BeginBackup(c.Context())
	if err != nil {
		return err
	}
	defer b.Close()
	c.Response.Header().Set("Content-Type", runtimev1.MediaTypeTar)
	c.Response.Header().Set("X-Content-Type-Options", "nosniff")
	out := &archive{tar: tar.NewWriter(c.PatientWriter(h.TransferTimeout)), at: time.Now()}
	if err := h.write(c, b, out); err != nil {
		if out.wrote {
			panic(http.ErrAbortHandler) // the client must not mistake a part for the whole
		}
		if errors.Is(err, store.ErrRemoving) {
			return apierrors.NewTooManyRequests(store.ErrRemoving.Error()+": try again", busySeconds)
		}
		return err
	}
	return nil
}

func (h *Backups) write(c *call.Call, b *thread.Backup, out *archive) error {
	sum, err := b.Rows(c.Context(), c.Namespace, out.row)
	if err != nil {
		return err
	}
	if err := out.endRows(); err != nil {
		return err
	}
	for _, contents := range sum.Contents {
		if err := out.begin(runtimev1.BackupContentsPrefix+contents.Digest, contents.Size); err != nil {
			return err
		}
		if err := b.Contents(c.Context(), contents, out.tar); err != nil {
			return err
		}
	}
	data, err := json.Marshal(runtimev1.BackupSummary{
		TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindBackupSummary), Namespace: c.Namespace,
		Schema: sum.Schema, At: sum.At, Rows: sum.Rows, Contents: len(sum.Contents), KeyIDs: sum.KeyIDs,
	})
	if err != nil {
		return err
	}
	if err := out.file(runtimev1.BackupSummaryFile, data); err != nil {
		return err
	}
	return out.tar.Close()
}

// archive writes the files of a backup.
type archive struct {
	tar   *tar.Writer
	at    time.Time
	rows  bytes.Buffer
	files int
	wrote bool
}

func (a *archive) begin(name string, size int64) error {
	a.wrote = true
	return a.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: a.at, Format: tar.FormatPAX})
}

func (a *archive) file(name string, data []byte) error {
	if err := a.begin(name, int64(len(data))); err != nil {
		return err
	}
	_, err := a.tar.Write(data)
	return err
}

// row adds a row. Rows are written in files of a bounded size.
func (a *archive) row(r store.BackupRow) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	a.rows.Write(line)
	a.rows.WriteByte('\n')
	if a.rows.Len() < pieceBytes {
		return nil
	}
	return a.endRows()
}

func (a *archive) endRows() error {
	if a.rows.Len() == 0 {
		return nil
	}
	a.files++
	err := a.file(fmt.Sprintf("%s%08d.jsonl", runtimev1.BackupRowsPrefix, a.files), a.rows.Bytes())
	a.rows.Reset()
	return err
}

// rowsOf reads lines of rows.
func rowsOf(body []byte) ([]store.BackupRow, error) {
	var rows []store.BackupRow
	for i, line := range strings.Split(strings.TrimSuffix(string(body), "\n"), "\n") {
		var r store.BackupRow
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("line %d of the rows is not JSON: the backup is damaged", i+1))
		}
		rows = append(rows, r)
	}
	return rows, nil
}
