package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/engine/enginetest"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/internal/store"
)

// BenchmarkEffects measures firings that are due at once for ten threads whose sandboxes run: from the first claim to the last
// end. Budget: 150 a second on two cores with SQLite. Run it with -benchtime 300x: each firing must wait for the others.
func BenchmarkEffects(b *testing.B) {
	const threads = 10
	w, err := enginetest.New(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	w.Logger = logr.Discard()
	pool, err := w.UseProcesses(process.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = pool.Close() }()
	w.Definitions.Put("agent")
	m, failed := compile.Compile("remind.ts", `import { defineEffect } from '@standardagents/builder';
import { z } from 'zod';
export default defineEffect({ args: z.object({ n: z.number() }), execute: (state, args) => args.n });`, sandbox.TypeScript)
	if failed != nil {
		b.Fatal(failed)
	}
	w.Definitions.PutEffect("remind", definition.Effect{ObjectName: "remind", Module: m, Digest: "remind"})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ids := make([]string, threads)
	for i := range ids {
		if ids[i], err = w.Thread(ctx, "agent"); err != nil {
			b.Fatal(err)
		}
	}
	e, err := engine.New(w.Options())
	if err != nil {
		b.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() { _ = e.Start(ctx) })
	defer done.Wait()
	defer cancel()
	fire := func(series string, n int) time.Duration {
		keys := make([]store.FiringKey, n)
		due := time.Now().Add(time.Duration(n)*5*time.Millisecond + 500*time.Millisecond) // when all are recorded
		for i := range keys {
			f := store.Firing{EffectID: fmt.Sprintf("%s-%d", series, i), Due: 1, ThreadID: ids[i%threads], Namespace: enginetest.Namespace, Name: "se", Effect: "remind", Args: enginetest.JSON(map[string]any{"n": i}), AvailableAt: due.UnixMicro()}
			if _, err := w.Store.RecordFiring(ctx, f); err != nil {
				b.Fatal(err)
			}
			keys[i] = f.Key()
		}
		time.Sleep(time.Until(due))
		b.ResetTimer()
		e.WakeEffects()
		for _, key := range keys {
			for {
				f, err := w.Store.Firing(ctx, key)
				if err != nil {
					b.Fatal(err)
				}
				if f.Status == store.FiringSucceeded {
					break
				}
				if f.Status.Ended() {
					b.Fatalf("a firing ended as %s: %s", f.Status, f.Error)
				}
				time.Sleep(2 * time.Millisecond)
			}
		}
		b.StopTimer()
		return time.Since(due)
	}
	fire(fmt.Sprintf("warm-%d", b.N), 2*threads) // starts the sandboxes
	time.Sleep(time.Second)                      // in which they compile their libraries
	took := fire(fmt.Sprintf("b-%d", b.N), b.N)
	b.ReportMetric(float64(b.N)/took.Seconds(), "firings/s")
}
