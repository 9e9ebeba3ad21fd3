package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
)

const benchContent = 300 // bytes of a message

// BenchmarkAppend compares durable appends of messages with bare one-row transactions on the same disk.
// The two take turns, because the disk's speed changes from second to second; the figure is their ratio.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 16} {
		b.Run(fmt.Sprintf("threads=%d", writers), func(b *testing.B) {
			bare, appends := newBare(b), newAppends(b, writers)
			var bareTime, appendTime time.Duration
			var rows, messages int
			for b.Loop() {
				start := time.Now()
				bare(20)
				bareTime += time.Since(start)
				rows += 20
				start = time.Now()
				appends(20)
				appendTime += time.Since(start)
				messages += 20 * writers
			}
			bareRate, appendRate := float64(rows)/bareTime.Seconds(), float64(messages)/appendTime.Seconds()
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(bareRate, "bare/s")
			b.ReportMetric(appendRate, "appends/s")
			b.ReportMetric(appendRate/bareRate, "ratio")
		})
	}
}

// newBare gives a function that inserts n rows of a message's size, each in a transaction of its own.
func newBare(b *testing.B) func(n int) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(), "bare.db")+
		"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)")
	check(b, err)
	b.Cleanup(func() { check(b, db.Close()) })
	db.SetMaxOpenConns(1)
	_, err = db.Exec(`CREATE TABLE bare (id INTEGER PRIMARY KEY, body TEXT) STRICT`)
	check(b, err)
	insert, err := db.Prepare(`INSERT INTO bare (body) VALUES (?)`)
	check(b, err)
	body := strings.Repeat("x", benchContent)
	return func(n int) {
		for range n {
			tx, err := db.Begin()
			check(b, err)
			_, err = tx.Stmt(insert).Exec(body)
			check(b, err)
			check(b, tx.Commit())
		}
	}
}

// newAppends gives a function that appends n messages to each of as many threads as there are writers.
func newAppends(b *testing.B, writers int) func(n int) {
	ctx := context.Background()
	s, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: b.TempDir()})
	check(b, err)
	b.Cleanup(func() { check(b, s.Close()) })
	for w := range writers {
		_, _, err := s.CreateThread(ctx, store.Thread{ID: fmt.Sprint("thread-", w), Namespace: "bench", Agent: "a"})
		check(b, err)
	}
	content := strings.Repeat("x", benchContent)
	return func(n int) {
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for range n {
					if err := s.Apply(ctx, fmt.Sprint("thread-", w), nil, &store.AppendMessage{
						Message: &store.Message{Role: store.RoleUser, Content: &content},
					}); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkPage reads the newest page, and one from the middle, of conversations of different lengths.
func BenchmarkPage(b *testing.B) {
	ctx := context.Background()
	for _, length := range []int{1_000, 100_000} {
		s, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: b.TempDir()})
		check(b, err)
		b.Cleanup(func() { check(b, s.Close()) })
		_, _, err = s.CreateThread(ctx, store.Thread{ID: "t", Namespace: "bench", Agent: "a"})
		check(b, err)
		content := strings.Repeat("x", benchContent)
		for range length / 1000 {
			var ops []store.Op
			for range 1000 {
				ops = append(ops, &store.AppendMessage{Message: &store.Message{Role: store.RoleUser, Content: &content}})
			}
			check(b, s.Apply(ctx, "t", nil, ops...))
		}
		for name, offset := range map[string]int{"newest": 0, "middle": length / 2} {
			b.Run(fmt.Sprintf("messages=%d/%s", length, name), func(b *testing.B) {
				for b.Loop() {
					page, err := s.Messages(ctx, "t", store.MessageQuery{Offset: offset})
					check(b, err)
					if len(page.Messages) != 100 || page.Total != int64(length) {
						b.Fatalf("%d of %d", len(page.Messages), page.Total)
					}
				}
			})
		}
	}
}

// BenchmarkRunnable looks for work among threads that rest.
func BenchmarkRunnable(b *testing.B) {
	ctx := context.Background()
	for _, idle := range []int{1_000, 100_000} {
		s, err := sqlstore.OpenSQLite(ctx, sqlstore.SQLiteOptions{Dir: b.TempDir()})
		check(b, err)
		b.Cleanup(func() { check(b, s.Close()) })
		var wg sync.WaitGroup
		for w := range 64 {
			wg.Go(func() {
				for i := w; i < idle; i += 64 {
					var ops []store.Op
					if i < 50 {
						ops = append(ops, &store.Enqueue{Item: store.InboxItem{Kind: store.InboxResume}})
					}
					if _, _, err := s.CreateThread(ctx, store.Thread{ID: fmt.Sprint("t", i), Namespace: fmt.Sprint("ns", i%20), Agent: "a"}, ops...); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		b.Run(fmt.Sprintf("idle=%d", idle), func(b *testing.B) {
			for b.Loop() {
				found, err := s.Runnable(ctx, 100)
				check(b, err)
				if len(found) != 50 {
					b.Fatal(len(found))
				}
			}
		})
		b.Run(fmt.Sprintf("list/threads=%d", idle), func(b *testing.B) {
			for b.Loop() {
				threads, err := s.Threads(ctx, store.ThreadQuery{Namespace: "ns3"})
				check(b, err)
				if len(threads) == 0 {
					b.Fatal("none")
				}
			}
		})
	}
}
