package threads

import (
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/ownclock"
	"github.com/skein-dev/skein/internal/thread"
)

// defaultLease is the term of a lease, in seconds, when the request sets none.
const defaultLease = 60

// Leases serves the leases under which clients write.
type Leases struct {
	Threads *thread.Service
}

// Acquire answers POST lease: the exclusive right to write the thread, for a term (THR-12).
func (h *Leases) Acquire(c *call.Call) error {
	ttl, err := leaseTerm(c)
	if err != nil {
		return err
	}
	w, err := h.Threads.Acquire(c.Context(), c.Row.ID, ttl)
	if err != nil {
		return err
	}
	return writeLease(c, http.StatusCreated, w, ttl)
}

// Renew answers PUT lease: it extends the lease in the header Skein-Lease.
func (h *Leases) Renew(c *call.Call) error {
	ttl, err := leaseTerm(c)
	if err != nil {
		return err
	}
	w, err := h.leaseOf(c)
	if err != nil {
		return err
	}
	if err := w.Renew(c.Context(), ttl); err != nil {
		return err
	}
	return writeLease(c, http.StatusOK, w, ttl)
}

// Release answers DELETE lease: it ends the lease in the header Skein-Lease. Repeating it is no error.
func (h *Leases) Release(c *call.Call) error {
	w, err := h.leaseOf(c)
	if err != nil {
		return err
	}
	if err := w.Release(c.Context()); err != nil {
		return err
	}
	return c.WriteSuccess()
}

func (h *Leases) leaseOf(c *call.Call) (*thread.Writer, error) {
	token := c.Request.Header.Get(runtimev1.HeaderLease)
	if token == "" {
		return nil, status.Invalid(c.Name, metav1.CauseTypeFieldValueRequired, runtimev1.HeaderLease, "set it to the token that POST lease returned")
	}
	return h.Threads.WriterOf(c.Row.ID, token)
}

func leaseTerm(c *call.Call) (time.Duration, error) {
	body := runtimev1.NewLease{TTLSeconds: defaultLease}
	if err := c.Decode(&body, true); err != nil {
		return 0, err
	}
	if body.TTLSeconds > int64(time.Hour.Seconds()) { // before the multiplication overflows
		body.TTLSeconds = 0
	}
	return time.Duration(body.TTLSeconds) * time.Second, nil
}

func writeLease(c *call.Call, code int, w *thread.Writer, ttl time.Duration) error {
	return c.WriteJSON(code, runtimev1.Lease{
		TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindLease), Token: w.Token(), Epoch: w.Epoch(), ExpiresAt: ownclock.Now().Add(ttl).UnixMicro(),
	})
}
