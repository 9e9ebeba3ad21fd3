package thread_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
	"github.com/skein-dev/skein/internal/thread"
)

// FuzzImport imports any bytes into an empty thread (LOG-02). Either a line is refused with a reason and nothing is imported, or what is exported
// afterwards can be imported elsewhere and is exported the same from there.
func FuzzImport(f *testing.F) {
	ctx := context.Background()
	db, err := sqlitetest.Open(ctx, sqlstore.SQLiteOptions{Dir: f.TempDir()})
	if err != nil {
		f.Fatal(err)
	}
	bucket, err := thread.OpenBucket(ctx, "file://"+f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _, _ = db.Close(), bucket.Close() })
	svc := thread.NewService(thread.Options{Store: db, Blobs: bucket})
	empty := func(t testing.TB) *thread.State {
		row, _, err := svc.Create(ctx, thread.NewThread{Thread: store.Thread{ID: uuid.NewString(), Namespace: "ns", Name: "t" + uuid.NewString(), Agent: "a"}})
		if err != nil {
			t.Fatal(err)
		}
		st, err := svc.Open(ctx, row.ID)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	const manifest = `{"agentId":"a","sessionId":"sess_1","taskId":"t","title":"T","createdAt":"2026-01-31T12:00:00.000Z","updatedAt":"2026-01-31T12:00:00.000Z"}` + "\n"
	const at = `,"timestamp":"2026-01-31T12:00:00.000Z"}` + "\n"
	for _, lines := range []string{
		manifest, "", "\n", "null\n", `{}`, manifest + "\n\n", manifest + manifest,
		manifest + `{"type":"message","role":"user","text":"hi"` + at + `{"role":"assistant","text":"<&>\u2028 \ud83d\ude00"` + at,
		manifest + `{"type":"tool_use","name":"look","input":{"a":[1,1e400,{}]}` + at + `{"type":"result","cost":0.01,"durationMs":12,"turns":2` + at,
		manifest + `{"role":"user","text":"x","silent":true,"name":"n","side":"b"` + at + `{"type":"assistant_text","text":"so","side":"both"` + at,
		manifest + `{"role":"user","text":"\u0000"` + at, manifest + `{"role":"tool","text":"x"` + at, manifest + "{\"role\":\"user\",\"text\":\"\xff\"" + at, "\ufeff" + manifest,
	} {
		f.Add([]byte(lines))
	}
	st := empty(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := st.Import(ctx, bytes.NewReader(data)); err != nil {
			var wrong *thread.ImportError
			if !errors.As(err, &wrong) || wrong.Line < 1 || wrong.Message == "" {
				t.Fatalf("%q is refused with %v", data, err)
			}
			if info, err := st.Info(ctx); err != nil || info.Messages != 0 {
				t.Fatalf("%q is refused, and something was imported: %v", data, err)
			}
			return
		}
		exported := export(ctx, t, st)
		again := empty(t)
		if _, err := again.Import(ctx, bytes.NewReader(exported)); err != nil {
			t.Fatalf("%q is exported as %q, which is refused: %v", data, exported, err)
		}
		if twice := export(ctx, t, again); !bytes.Equal(twice, exported) {
			t.Fatalf("%q is exported as %q, and that as %q", data, exported, twice)
		}
		st = empty(t)
	})
}

// export returns the lines behind the manifest, which differs from thread to thread.
func export(ctx context.Context, t *testing.T, st *thread.State) []byte {
	t.Helper()
	var out bytes.Buffer
	if _, err := st.Export(ctx, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
