package storetest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/skein-dev/skein/internal/store"
)

const (
	crashThreads = 6
	crashWriters = 8
)

// WriteUntilKilled plays a random script with many writers and writes the name of each acknowledged step to out, one on
// a line. It ends with the process, or with an error.
func WriteUntilKilled(ctx context.Context, s store.Store, round uint64, out io.Writer) error {
	threads, err := crashThreadsOf(ctx, s)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	w := bufio.NewWriter(out)
	told := func(tag string) error {
		mu.Lock()
		defer mu.Unlock()
		if _, err := fmt.Fprintln(w, tag); err != nil {
			return err
		}
		return w.Flush()
	}
	play := &play{store: s, ttl: 5 * time.Millisecond, newest: map[string]int64{}, wait: func() {}}
	return together(crashWriters, func(i int) error {
		random := rand.New(rand.NewPCG(round, uint64(i)))
		writer := &playWriter{play: play, told: told, script: &scriptWriter{
			name: fmt.Sprintf("r%d.%d", round, i), threads: threads, choose: random.IntN,
		}}
		return writer.run(ctx)
	})
}

// CheckAcknowledged returns an error that names what is missing or torn after crashes. acknowledged is what the
// processes wrote.
func CheckAcknowledged(ctx context.Context, s store.Store, acknowledged []string) error {
	threads, err := crashThreadsOf(ctx, s)
	if err != nil {
		return err
	}
	return checkScript(ctx, s, threads, acknowledged)
}

func crashThreadsOf(ctx context.Context, s store.Store) ([]string, error) {
	return scriptThreads(ctx, s, "crash", crashThreads)
}
