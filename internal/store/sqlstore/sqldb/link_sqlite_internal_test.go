package sqldb

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var dialect = &Dialect{Classify: ClassifySQLite}

// connect opens a connection to a file. It is closed with the test.
func connect(t *testing.T, file string) *Conn {
	t.Helper()
	c, err := Open(t.Context(), dialect, func(ctx context.Context, writes bool) (Link, error) {
		return ConnectSQLite(ctx, file, writes)
	}, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// What a link writes, SQLite's driver reads, and the other way round, of the same types.
func TestLinkAndDriverStoreTheSame(t *testing.T) {
	file := filepath.Join(t.TempDir(), "db")
	link := connect(t, file)
	driver, err := sql.Open("sqlite", SQLiteDSN(file))
	if err != nil {
		t.Fatal(err)
	}
	defer driver.Close()
	ctx := t.Context()
	if err := link.Write(ctx, `CREATE TABLE pairs (name TEXT, ours ANY, theirs ANY) STRICT`); err != nil {
		t.Fatal(err)
	}
	values := map[string]any{
		"null": nil, "zero": int64(0), "one": int64(1), "least": int64(math.MinInt64), "most": int64(math.MaxInt64), "int": 7, "true": true, "false": false,
		"half": 0.5, "whole float": 2.0, "huge float": math.MaxFloat64, "empty": "", "text": "grüße 😀", "number as text": "12", "long": strings.Repeat("0123456789", 20_000),
		"blob": []byte{0, 1, 255}, "empty blob": []byte{}, "no blob": []byte(nil), "long blob": bytes.Repeat([]byte{9}, 100_000),
		"valid": sql.NullString{String: "v", Valid: true}, "not valid": sql.NullInt64{},
	}
	for round := range 2 { // the second finds the statements prepared, and their memory as a long text has left it
		for name, v := range values {
			if _, err := link.Exec(ctx, `INSERT INTO pairs (name, ours) VALUES (?, ?)`, name, v); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if _, err := driver.ExecContext(ctx, `UPDATE pairs SET theirs = ? WHERE name = ?`, v, name); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var same int
			var ours, theirs string
			query := `SELECT ours IS theirs AND typeof(ours) = typeof(theirs), typeof(ours), typeof(theirs) FROM pairs WHERE name = ?`
			if err := link.Row(ctx, query, []any{name}, &same, &ours, &theirs); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if same != 1 {
				t.Errorf("round %d: %s is stored as %s, the driver stores %s", round, name, ours, theirs)
			}
		}
		if n, err := link.Exec(ctx, `DELETE FROM pairs`); err != nil || n != int64(len(values)) {
			t.Errorf("%d rows were removed of %d: %v", n, len(values), err)
		}
	}
}

func TestLinkReadsWhatItWrote(t *testing.T) {
	link, ctx := connect(t, filepath.Join(t.TempDir(), "db")), t.Context()
	long := strings.Repeat("x", 300_000)
	var text, empty, nul, broken, named string
	var n int64
	var small int
	var yes bool
	var half float64
	var blob, none []byte
	var missing sql.NullString
	var there sql.NullInt64
	var shown Text
	args := []any{long, "", "a\x00b", "a\xffb", "named", int64(1) << 40, 5, true, 0.5, []byte("blob"), nil, nil, 3, "{}"}
	if err := link.Row(ctx, `SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?`, args,
		&text, &empty, &nul, &broken, &named, &n, &small, &yes, &half, &blob, &none, &missing, &there, &shown); err != nil {
		t.Fatal(err)
	}
	if text != long || empty != "" || nul != "a\uFFFDb" || broken != "a\uFFFDb" || named != "named" || n != 1<<40 || small != 5 || !yes || half != 0.5 || string(blob) != "blob" ||
		none != nil || missing.Valid || there.Int64 != 3 || string(shown.Raw()) != "{}" {
		t.Errorf("read %d bytes, %q %q %q %q %d %d %t %v %q %v %v %v %q", len(text), empty, nul, broken, named, n, small, yes, half, blob, none, missing, there, shown.Raw())
	}
	var one int
	if err := link.Row(ctx, `SELECT ?`, []any{"x"}, &one); err == nil || !strings.Contains(err.Error(), "column 1") {
		t.Errorf("a text was read as a number: %v", err)
	}
	if err := link.Row(ctx, `SELECT 1, 2`, nil, &one); err == nil || !strings.Contains(err.Error(), "has 2 columns, 1 are read") {
		t.Errorf("half of a row was read: %v", err)
	}
	for _, args := range [][]any{nil, {1, 2}} {
		if _, err := link.Exec(ctx, `SELECT ?`, args...); err == nil || !strings.Contains(err.Error(), "has 1 parameters") {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// Rows of one query may be read while another one runs.
func TestLinkRunsStatementsWithinRows(t *testing.T) {
	link, ctx := connect(t, filepath.Join(t.TempDir(), "db")), t.Context()
	var outer []string
	err := link.Rows(ctx, `SELECT value FROM json_each(?) WHERE value <> ?`, []any{`["a", "b", "c"]`, "b"}, func(scan Scanner) error {
		var v, inner string
		if err := scan(&v); err != nil {
			return err
		}
		if err := link.Row(ctx, `SELECT ? || ?`, []any{v, strings.Repeat("y", 1000)}, &inner); err != nil {
			return err
		}
		outer = append(outer, v)
		return nil
	})
	if err != nil || strings.Join(outer, "") != "ac" {
		t.Errorf("read %q: %v", outer, err)
	}
}

func TestLinkSaysWhatErrorsMean(t *testing.T) {
	dir := t.TempDir()
	link, ctx := connect(t, filepath.Join(dir, "db")), t.Context()
	if err := link.Write(ctx, `CREATE TABLE t (n INTEGER PRIMARY KEY) STRICT`); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := link.Exec(ctx, `INSERT INTO t VALUES (1), (1)`)
		if ClassifySQLite(err) != Ordinary || err == nil || !strings.Contains(err.Error(), "UNIQUE constraint failed: t.n (1555)") {
			t.Errorf("a repeated key: %v", err)
		}
	}
	if _, err := link.Exec(ctx, `SELEC 1`); err == nil || !strings.Contains(err.Error(), "syntax error") {
		t.Errorf("a typo: %v", err)
	}
	if link.Failed {
		t.Error("the connection counts as failed after errors of statements")
	}
	if _, err := ConnectSQLite(ctx, filepath.Join(dir, "no", "db"), true); ClassifySQLite(err) != Unavailable {
		t.Errorf("a file in a folder that does not exist: %v", err)
	}
	noise := filepath.Join(dir, "noise")
	if err := os.WriteFile(noise, bytes.Repeat([]byte("noise"), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ConnectSQLite(ctx, noise, true); ClassifySQLite(err) != Broken {
		t.Errorf("a file that is no database: %v", err)
	}
	reader, err := ConnectSQLite(ctx, filepath.Join(dir, "db"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if _, err := reader.Exec(ctx, `INSERT INTO t VALUES (2)`, nil); ClassifySQLite(err) != Unavailable {
		t.Errorf("a write of a connection that reads: %v", err)
	}
}

// The end of a context interrupts a query of interruptible readers before its first row, and the connection can be used after that.
func TestLinkInterruptsQueries(t *testing.T) {
	file := filepath.Join(t.TempDir(), "db")
	connect(t, file)
	readers := NewReaders(1, func(ctx context.Context) (*Conn, error) {
		return Open(ctx, dialect, func(ctx context.Context, writes bool) (Link, error) {
			return ConnectSQLite(ctx, file, writes)
		}, false)
	})
	defer readers.Close()
	var n int64
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		err := readers.Interruptible().Row(ctx, `WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT max(n) FROM c`, nil, &n)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("an endless query ended with %v", err)
		}
		if err := readers.Row(t.Context(), `SELECT 7`, nil, &n); err != nil || n != 7 {
			t.Fatalf("the next query read %d: %v", n, err)
		}
	}
}
