package sqlstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest"
)

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// BenchmarkRunnable finds work among idle threads.
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
				threads, _, err := s.Threads(ctx, store.ThreadQuery{Namespace: "ns3"})
				check(b, err)
				if len(threads) == 0 {
					b.Fatal("none")
				}
			}
		})
	}
}

func BenchmarkFirings(b *testing.B) {
	storetest.BenchmarkFirings(b, func() (store.Store, error) {
		return sqlstore.OpenSQLite(b.Context(), sqlstore.SQLiteOptions{Dir: b.TempDir()})
	})
}
