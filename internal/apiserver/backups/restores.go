package backups

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/membudget"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// Restores serves restores. Each of its calls can be repeated.
type Restores struct {
	Threads *thread.Service
	// Live reads from the API server, because a cache may not have objects that were just made.
	Live client.Reader
	// TransferTimeout bounds one piece of a body.
	TransferTimeout time.Duration
}

const (
	// maxPlanBytes bounds the list of threads of a plan.
	maxPlanBytes = 8 << 20
	shownThreads = 10
	// effectsPage is how many ScheduledEffects are listed at once.
	effectsPage = 500
)

var backupID = regexp.MustCompile(`^[0-9a-z-]{1,64}$`)

func (h *Restores) restoreOf(c *call.Call, id string) (store.Restore, error) {
	if !backupID.MatchString(id) {
		return store.Restore{}, status.Invalid(id, metav1.CauseTypeFieldValueInvalid, "backup", fmt.Sprintf("%q is not the id of a backup: use that of its manifest", id))
	}
	ns, err := h.Threads.KnownNamespace(c.Context(), store.Namespace{Name: c.Namespace})
	return store.Restore{ID: id, Namespace: ns.Name, NamespaceUID: ns.UID}, err
}

// explain turns what is wrong with a backup into a Status.
func explain(id string, err error) error {
	var wrong *store.BackupError
	var missing *store.MissingContentsError
	switch {
	case errors.As(err, &wrong):
		return status.Invalid(id, metav1.CauseTypeFieldValueInvalid, "backup", wrong.Message)
	case errors.As(err, &missing):
		return status.Invalid(id, metav1.CauseTypeFieldValueInvalid, "backup", missing.Error()+": send them, then finish the restore")
	case errors.Is(err, store.ErrRestored):
		return status.Conflict(id, "another request has restored this backup into the namespace meanwhile, and this one wrote nothing: repeat the restore, and it continues from there")
	case errors.Is(err, store.ErrRetained):
		return status.Conflict(id, "a thread with a due effect has no Thread object yet: create the Thread, then try again")
	}
	return err
}

// Begin answers POST restores: how far the restore has come, or why it cannot be made. It writes nothing.
func (h *Restores) Begin(c *call.Call) error {
	body, err := h.body(c, maxPlanBytes)
	if err != nil {
		return err
	}
	var plan runtimev1.RestorePlan
	if err := call.DecodeStrict("restore", body, &plan); err != nil {
		return err
	}
	r, err := h.restoreOf(c, plan.Backup)
	if err != nil {
		return err
	}
	state, err := h.Threads.BeginRestore(c.Context(), r, thread.RestorePlan{Schema: plan.Schema, Threads: plan.Threads, KeyIDs: plan.KeyIDs})
	if err != nil {
		return explain(plan.Backup, err)
	}
	if n := len(state.Taken); n > 0 {
		return status.Conflict(plan.Backup, fmt.Sprintf("%d threads of the backup are stored here already, with their conversations, and nothing was restored: %s; "+
			"delete them first if the backup is to replace them", n, strings.Join(state.Taken[:min(n, shownThreads)], ", ")))
	}
	return c.WriteJSON(http.StatusOK, runtimev1.RestoreState{
		TypeMeta: runtimev1.TypeMetaOf(runtimev1.KindRestoreState), Staged: state.Staged, Restored: state.Restored, Finished: state.Finished, Effects: state.Effects,
	})
}

// body reads a body of a bounded size.
func (h *Restores) body(c *call.Call, limit int64) ([]byte, error) {
	in := c.PatientBody(h.TransferTimeout)
	memory := membudget.From(c.Context())
	data, err := membudget.ReadAll(c.Context(), memory, io.LimitReader(in, limit+1))
	switch {
	case membudget.Refused(err):
		return nil, err
	case err != nil:
		return nil, apierrors.NewBadRequest("the body was cut off or came too slowly, and nothing of it was restored: send it again")
	case int64(len(data)) > limit:
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the body has more than %d bytes: send fewer rows at once", limit))
	case len(data) == 0:
		return nil, apierrors.NewBadRequest("the body is empty: send what belongs to the restore")
	}
	if err := memory.Draw(c.Context(), int64(len(data))); err != nil { // its lines are texts of their own
		return nil, err
	}
	return data, c.DrawMemoryOfJSON(data)
}

// Rows answers POST restores/{backup}/rows.
func (h *Restores) Rows(c *call.Call) error {
	r, err := h.restoreOf(c, c.Name)
	if err != nil {
		return err
	}
	data, err := h.body(c, runtimev1.MaxRestoreRowsBytes)
	if err != nil {
		return err
	}
	rows, err := rowsOf(data)
	if err != nil {
		return err
	}
	if err := h.Threads.Store().RestoreRows(c.Context(), r, rows); err != nil {
		return explain(c.Name, err)
	}
	return c.WriteSuccess()
}

var digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Contents answers PUT restores/{backup}/contents/{digest}.
func (h *Restores) Contents(c *call.Call) error {
	r, err := h.restoreOf(c, c.Name)
	if err != nil {
		return err
	}
	if !digestForm.MatchString(c.Rest()) {
		return status.Invalid(c.Name, metav1.CauseTypeFieldValueInvalid, "digest", fmt.Sprintf("%q is not a SHA-256 in hex", c.Rest()))
	}
	if err := membudget.From(c.Context()).Draw(c.Context(), contentsBytes); err != nil {
		return err
	}
	in := c.PatientBody(h.TransferTimeout)
	err = h.Threads.RestoreContents(c.Context(), r, c.Rest(), in)
	if in.Err != nil {
		return apierrors.NewBadRequest("the body was cut off or came too slowly, and nothing of it was restored: send it again")
	}
	if err != nil {
		return explain(c.Name, err)
	}
	return c.WriteSuccess()
}

// Finish answers POST restores/{backup}/finish: all threads of the restore become visible at once, retained and without an object.
func (h *Restores) Finish(c *call.Call) error {
	r, err := h.restoreOf(c, c.Name)
	if err != nil {
		return err
	}
	var body runtimev1.RestoreFinish
	if err := c.Decode(&body, false); err != nil {
		return err
	}
	if err := h.Threads.Store().FinishRestore(c.Context(), r, body.Rows); err != nil {
		return explain(c.Name, err)
	}
	return c.WriteSuccess()
}

// Effects answers POST restores/{backup}/effects: it binds the restored firings and schedules to the new ScheduledEffects.
func (h *Restores) Effects(c *call.Call) error {
	r, err := h.restoreOf(c, c.Name)
	if err != nil {
		return err
	}
	data, err := h.body(c, maxPlanBytes)
	if err != nil {
		return err
	}
	var body runtimev1.RestoreEffects
	if err := call.DecodeStrict(c.Name, data, &body); err != nil {
		return err
	}
	if err := h.objects(c, body.Effects); err != nil {
		return err
	}
	if err := h.Threads.Store().BindEffects(c.Context(), r, body.Effects); err != nil {
		return explain(c.Name, err)
	}
	return c.WriteSuccess()
}

// objects returns an error unless the new UIDs are those of ScheduledEffects of the namespace: others are not the caller's to write to.
func (h *Restores) objects(c *call.Call, effects map[string]string) error {
	foreign := map[string]bool{}
	for _, uid := range effects {
		foreign[uid] = true
	}
	page := &metav1.PartialObjectMetadataList{}
	for first := true; len(foreign) > 0 && (first || page.Continue != ""); first = false {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(skeinv1.GroupVersion.WithKind("ScheduledEffectList"))
		if err := h.Live.List(c.Context(), list, client.InNamespace(c.Namespace), client.Limit(effectsPage), client.Continue(page.Continue)); err != nil {
			return err
		}
		for i := range list.Items {
			delete(foreign, string(list.Items[i].UID))
		}
		page = list
	}
	for _, uid := range slices.Sorted(maps.Keys(foreign)) {
		return status.Invalid(c.Name, metav1.CauseTypeFieldValueInvalid, "effects", fmt.Sprintf("no ScheduledEffect of the namespace has the UID %q: make the objects first, then send their UIDs", uid))
	}
	return nil
}

// Abandon answers DELETE restores/{backup}: it removes what is not visible yet.
func (h *Restores) Abandon(c *call.Call) error {
	r, err := h.restoreOf(c, c.Name)
	if err != nil {
		return err
	}
	if err := h.Threads.AbandonRestore(c.Context(), r); err != nil {
		return err
	}
	return c.WriteSuccess()
}
