// Package tooltest provides what tests of tools need.
package tooltest

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
	"github.com/skein-dev/skein/internal/store/storetest/sqlitetest"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/internal/tool"
)

// NewHost returns a host for an execution of a fresh thread, in a store below dir. env are the thread's variables. Call
// closed when the test is over.
func NewHost(ctx context.Context, dir string, env map[string]string) (h *tool.Host, closed func() error, err error) {
	s, err := sqlitetest.Open(ctx, sqlstore.SQLiteOptions{Dir: dir})
	if err != nil {
		return nil, nil, err
	}
	bucket, err := thread.OpenBucket(ctx, "file://"+dir+"/blobs")
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	closed = func() error { return errors.Join(s.Close(), bucket.Close()) }
	threads := thread.NewService(thread.Options{Store: s, Blobs: bucket})
	threads.ServeEnv(thread.EnvOptions{Layers: layers(env)})
	t, _, err := threads.Create(ctx, thread.NewThread{Thread: store.Thread{ID: uuid.NewString(), Namespace: "n", Name: "t", Agent: "a"}})
	if err != nil {
		return nil, nil, errors.Join(err, closed())
	}
	st, err := threads.Open(ctx, t.ID)
	if err != nil {
		return nil, nil, errors.Join(err, closed())
	}
	return &tool.Host{Thread: t, State: st, Threads: threads}, closed, nil
}

type layers map[string]string

// Layers implements thread.EnvLayerer.
func (l layers) Layers(context.Context, *store.Thread) (*thread.EnvLayers, error) {
	out := &thread.EnvLayers{}
	for name, value := range l {
		out.Values = append(out.Values, thread.EnvValue{Name: name, Value: value, Type: store.EnvSecret, Source: thread.EnvFromPrompt})
	}
	return out, nil
}
