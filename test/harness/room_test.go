package harness

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store/storetest/pgtest"
)

func TestAnEmptyDiskIsFilledAndCleared(t *testing.T) {
	r, err := NewRoom(t.TempDir(), "1m")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	write := func() error { return os.WriteFile(filepath.Join(r.Path(), "file"), make([]byte, 100_000), 0o600) }
	if err := r.Fill(); err != nil {
		t.Fatal(err)
	}
	if err := write(); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("a full disk takes a file: %v", err)
	}
	if err := r.Clear(); err != nil {
		t.Fatal(err)
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
}

// What PostgreSQL acknowledged on a disk that was full now and then is there when there is room again.
func TestFullDiskOfPostgreSQL(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := NewRoom(t.TempDir(), "1g")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	s, err := pgtest.Start(ctx, pgtest.Options{Dir: r.Path()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Stop() }()
	if found, err := filepath.Glob(filepath.Join(r.Path(), "data", "PG_VERSION")); len(found) != 1 {
		t.Fatalf("the data is not on the disk: %v, %v", found, err)
	}
	do := func(statement string, args ...any) error {
		c, err := pgx.Connect(ctx, s.URL("postgres"))
		if err != nil {
			return err
		}
		defer func() { _ = c.Close(ctx) }()
		_, err = c.Exec(ctx, statement, args...)
		return err
	}
	if err := do("CREATE TABLE kept (n int, what text)"); err != nil {
		t.Fatal(err)
	}
	acknowledged := 0
	insert := func() (err error) {
		if err = do("INSERT INTO kept SELECT $1, string_agg(md5(i::text), '') FROM generate_series(1, 10000) i", acknowledged); err == nil {
			acknowledged++
		}
		return err
	}
	for range 3 {
		if err := insert(); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Fill(); err != nil {
		t.Fatal(err)
	}
	for insert() == nil { // until no room is left in the pages that it has
		if acknowledged > 100 {
			t.Fatal("a full disk takes everything")
		}
	}
	if err := r.Clear(); err != nil {
		t.Fatal(err)
	}
	if !s.Running() {
		if err := s.Up(ctx); err != nil {
			t.Fatal(err)
		}
	}
	NewWithT(t).Eventually(ctx, insert).WithTimeout(time.Minute).WithPolling(50*time.Millisecond).Should(Succeed(), "there is room again")
	c, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(ctx) }()
	var n int
	if err := c.QueryRow(ctx, "SELECT count(DISTINCT n) FROM kept").Scan(&n); err != nil || n != acknowledged {
		t.Fatalf("%d of %d rows: %v", n, acknowledged, err)
	}
}
