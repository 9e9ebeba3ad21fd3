package txn

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
)

// A commit does what its transactions do last once for all of them. When that fails, each transaction does it for itself, and one that is
// refused does not harm the others.
func TestTransactionsOfACommitEndTogether(t *testing.T) {
	file := filepath.Join(t.TempDir(), "db")
	db, err := sql.Open("sqlite", sqldb.SQLiteDSN(file))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`CREATE TABLE used (n INTEGER)`); err != nil {
		t.Fatal(err)
	}
	s := &serial{dialect: &sqldb.Dialect{Begin: "BEGIN IMMEDIATE", Classify: sqldb.ClassifySQLite}, now: func() int64 { return 1 },
		open: func(ctx context.Context, writes bool) (sqldb.Link, error) {
			return sqldb.ConnectSQLite(ctx, file, writes)
		}}
	defer s.close()

	errOver := errors.New("over")
	var counted []int64
	use := func(t *Tx) error {
		t.AtEnd("small", "used", func() error {
			var n int64
			if err := t.Row(t.Ctx, `SELECT count(*) FROM used`, nil, &n); err != nil {
				return err
			}
			counted = append(counted, n)
			if n > 4 {
				return errOver
			}
			return nil
		})
		return t.Write(t.Ctx, `INSERT INTO used VALUES (1)`)
	}
	commit := func(fns ...func(*Tx) error) (errs []error) {
		var batch []*job
		for _, fn := range fns {
			batch = append(batch, &job{ctx: t.Context(), fn: fn})
		}
		counted = nil
		s.commit(batch)
		for _, j := range batch {
			errs = append(errs, j.err)
		}
		return errs
	}
	if errs := commit(use, use, use); errors.Join(errs...) != nil || !slices.Equal(counted, []int64{3}) {
		t.Errorf("three ended with %v, and counted %v", errs, counted)
	}
	if errs := commit(use, use); errs[0] != nil || !errors.Is(errs[1], errOver) || !slices.Equal(counted, []int64{5, 4, 5}) {
		t.Errorf("two of which one has room ended with %v, and counted %v", errs, counted)
	}
	var n int
	if err := db.QueryRow(`SELECT count(*) FROM used`).Scan(&n); err != nil || n != 4 {
		t.Errorf("%d are stored, %v", n, err)
	}

	var order []string
	ends := func(namespace string) func(*Tx) error {
		return func(t *Tx) error {
			t.AtEnd(namespace, "", func() error { order = append(order, namespace); return nil })
			order = append(order, "run")
			return nil
		}
	}
	if errs := commit(ends("b"), ends("a"), ends("b")); errors.Join(errs...) != nil || !slices.Equal(order, []string{"run", "run", "run", "a", "b", "b"}) {
		t.Errorf("%v, in the order %v", errs, order)
	}
}

// A writer asks for a fact once, and again after a transaction that failed: what that one read may have been undone.
func TestFactsAreForgottenWithFailedTransactions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "db")
	s := &serial{dialect: &sqldb.Dialect{Begin: "BEGIN IMMEDIATE", Classify: sqldb.ClassifySQLite}, now: func() int64 { return 1 },
		open: func(ctx context.Context, writes bool) (sqldb.Link, error) {
			return sqldb.ConnectSQLite(ctx, file, writes)
		}}
	defer s.close()
	asked := 0
	commit := func(fn func(*Tx) error) error {
		j := &job{ctx: t.Context(), fn: fn}
		s.commit([]*job{j})
		return j.err
	}
	learn := func(tx *Tx) error {
		if err := tx.Write(tx.Ctx, `CREATE TABLE IF NOT EXISTS used (n INTEGER)`); err != nil {
			return err
		}
		_, err := tx.Fact(HasWebhooks, func() (bool, error) { asked++; return false, nil })
		return err
	}
	failed := errors.New("failed")
	for i, step := range []struct {
		fn    func(*Tx) error
		fails bool
		asked int
	}{
		{learn, false, 1},
		{learn, false, 1},
		{func(tx *Tx) error { tx.ForgetFact(HasWebhooks); return learn(tx) }, false, 2},
		{func(tx *Tx) error { return errors.Join(learn(tx), failed) }, true, 3}, // it runs once more, without assumptions
		{learn, false, 4},
	} {
		if err := commit(step.fn); (err != nil) != step.fails || asked != step.asked {
			t.Errorf("step %d: asked %d times, not %d: %v", i, asked, step.asked, err)
		}
	}
}
