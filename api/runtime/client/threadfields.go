package client

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"k8s.io/client-go/rest"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// Update changes the thread's own fields, all given ones or none (THR-14), and returns the new record. With p.V it
// fails, with an error that IsConflict, when the thread has another version.
func (t *Thread) Update(ctx context.Context, p runtimev1.ThreadPatch) (*runtimev1.ThreadRecord, error) {
	return sendAs[runtimev1.ThreadRecord](ctx, t, http.MethodPatch, p, "")
}

// Archive hides the thread from lists unless they ask for archived threads. It can still be read and written
// (THR-08).
func (t *Thread) Archive(ctx context.Context) (*runtimev1.ThreadRecord, error) {
	archived := true
	return t.Update(ctx, runtimev1.ThreadPatch{Archived: &archived})
}

// Unarchive makes lists show the thread again.
func (t *Thread) Unarchive(ctx context.Context) (*runtimev1.ThreadRecord, error) {
	archived := false
	return t.Update(ctx, runtimev1.ThreadPatch{Archived: &archived})
}

// ActivateSkill records that a skill was activated, once per name. A repeat returns the first record (AGT-08).
func (t *Thread) ActivateSkill(ctx context.Context, name string, arguments json.RawMessage) (*runtimev1.SkillActivation, error) {
	return sendAs[runtimev1.SkillActivation](ctx, t, http.MethodPost, runtimev1.SkillActivation{Name: name, Arguments: arguments}, runtimev1.SubresourceSkills)
}

// Acquire takes the exclusive right to write the thread for a term of whole seconds (THR-12). During the term no run
// of the thread starts, and any other Acquire fails with an error that IsConflict. Use Holding to write under the
// lease, Renew to extend it and Release to end it.
func (t *Thread) Acquire(ctx context.Context, ttl time.Duration) (*runtimev1.Lease, error) {
	return sendAs[runtimev1.Lease](ctx, t, http.MethodPost, runtimev1.NewLease{TTLSeconds: int64(ttl / time.Second)}, runtimev1.SubresourceLease)
}

// Holding returns a handle on the same thread for the holder of a lease. Its writes fail with an error that
// IsConflict, and change nothing, once the lease has ended or passed to another holder.
func (t *Thread) Holding(l *runtimev1.Lease) *Thread { return t.with(runtimev1.HeaderLease, l.Token) }

// Once returns a handle on the same thread for one write that may be repeated. With the same key, such as a random
// UUID, the write happens once, and a repeat gets the first answer (MSG-10). Another write with that key is an error
// that IsInvalid. Keys are kept for seven days.
func (t *Thread) Once(key string) *Thread { return t.with(runtimev1.HeaderIdempotencyKey, key) }

// Expecting returns a handle on the same thread for one write that expects version v. When the thread has another
// version, the write fails with an error that IsConflict (THR-11).
func (t *Thread) Expecting(v int64) *Thread {
	bound := *t
	bound.expect = &v
	return &bound
}

func (t *Thread) with(header, value string) *Thread {
	bound := *t
	bound.headers = append(append([][2]string(nil), t.headers...), [2]string{header, value})
	return &bound
}

// Impatient returns a handle on the same thread whose reads are not sent again when the server asks for it. Otherwise they are sent up to ten
// times more, each time after what the server asks for, for example while the thread is being set up.
func (t *Thread) Impatient() *Thread {
	bound := *t
	bound.impatient = true
	return &bound
}

// bind adds the thread's headers and expected version to a request that writes. A request that reads gets neither; for an impatient
// client, it is not tried again.
func (t *Thread) bind(verb string, r *rest.Request) *rest.Request {
	if verb == http.MethodGet {
		if t.impatient {
			r.MaxRetries(0)
		}
		return r
	}
	for _, h := range t.headers {
		r.SetHeader(h[0], h[1])
	}
	if t.expect != nil {
		r.Param("v", strconv.FormatInt(*t.expect, 10))
	}
	return r
}

// Renew extends the lease that the thread is Holding to ttl from now. An error that IsConflict means that another
// holder has the thread.
func (t *Thread) Renew(ctx context.Context, ttl time.Duration) (*runtimev1.Lease, error) {
	return sendAs[runtimev1.Lease](ctx, t, http.MethodPut, runtimev1.NewLease{TTLSeconds: int64(ttl / time.Second)}, runtimev1.SubresourceLease)
}

// Release ends the lease that the thread is Holding. Repeating it is no error.
func (t *Thread) Release(ctx context.Context) error {
	return t.send(ctx, http.MethodDelete, nil, nil, runtimev1.SubresourceLease)
}

// HistoryOptions select threads (THR-15). An empty field selects all.
type HistoryOptions struct {
	Limit    int    // 100 when 0, 1000 at most
	Continue string // metadata.continue of the previous page
	Archived string // "false", "true" or "all"; "" means "false"
	Agent    string
	User     string
	Task     string
}

// History lists the threads of a namespace, newest activity first, without their messages. An empty namespace means
// all namespaces.
func (c *Client) History(ctx context.Context, namespace string, o HistoryOptions) (*runtimev1.ThreadHistoryList, error) {
	p := map[string]string{}
	if o.Limit != 0 {
		p["limit"] = strconv.Itoa(o.Limit)
	}
	for k, v := range map[string]string{"continue": o.Continue, "archived": o.Archived, "agent": o.Agent, "user": o.User, "task": o.Task} {
		if v != "" {
			p[k] = v
		}
	}
	return viewAs[runtimev1.ThreadHistoryList](ctx, c, p, namespace, runtimev1.ViewHistory)
}
