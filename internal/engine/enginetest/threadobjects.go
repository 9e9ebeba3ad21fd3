package enginetest

import (
	"context"
	"errors"
	"sync"

	"github.com/google/uuid"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// ThreadObjects implements ports.ThreadObjects in memory. An object adopts its thread at once.
type ThreadObjects struct {
	world *World

	mu    sync.Mutex
	names map[string]string // ids of threads by the names of objects
	// refusal is why no object is taken; "" when objects are taken.
	refusal string
}

// Refuse has the cluster take no object; "" ends that.
func (o *ThreadObjects) Refuse(why string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refusal = why
}

// Name implements ports.ThreadObjects.
func (*ThreadObjects) Name(origin *store.Thread, cause string) string {
	return origin.Name + "-" + uuid.NewSHA1(uuid.NameSpaceOID, []byte(origin.ID+cause)).String()[:8]
}

// Declare implements ports.ThreadObjects.
func (o *ThreadObjects) Declare(ctx context.Context, t *store.Thread, _ string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refusal != "" {
		return &thread.InvalidError{Field: "thread", Message: o.refusal}
	}
	if o.names == nil {
		o.names = map[string]string{}
	}
	if was, ok := o.names[t.Name]; ok && was != t.ID {
		return errors.New("the object exists")
	}
	o.names[t.Name] = t.ID
	uid := uuid.NewSHA1(uuid.NameSpaceOID, []byte(t.Name)).String()
	return o.world.Store.Apply(ctx, t.ID, nil, &store.Adopt{ObjectUID: uid, Name: t.Name, Agent: t.Agent})
}

// Declared returns the number of objects.
func (o *ThreadObjects) Declared() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.names)
}
