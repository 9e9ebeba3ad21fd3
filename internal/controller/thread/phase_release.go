package thread

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// maxReleased is the number of objects that are remembered after their finalizer was removed. The purge causes notifications, and with
// an old copy of the object each of them would try to remove the finalizer once more.
const maxReleased = 10_000

// idOfDeleted returns the id of the stored thread of an object that is being deleted. When spec.threadID could not be
// decoded, the label says it. A label that names the thread of another object does no harm: its data has another owner.
func idOfDeleted(o *skeinv1.Thread) string {
	if id := o.Labels[skeinv1.LabelThreadID]; id != "" && strings.Contains(o.Undecodable, "spec.threadID: ") {
		return id
	}
	return o.ThreadID()
}

// maxReleases bounds the attempts to remove the finalizer of an object whose spec the API server refuses. It names
// some of the wrong fields only after others are gone.
const maxReleases = 5

// release removes the finalizer. The patch is about metadata only, whatever the spec holds.
//
// The API server checks the whole object nevertheless, and refuses it while a rule of the schema cannot be evaluated
// because a value in spec has another type. Nothing reads that value any more, so release removes it in the same write.
// A field that is fixed when the object is created is different: its rule reads the old value, so the API server takes
// no correction at all while it has that rule. Then release returns its refusal.
func (r *Reconciler) release(ctx context.Context, s *scope) error {
	before := s.object.DeepCopy()
	controllerutil.RemoveFinalizer(s.object, skeinv1.Finalizer)
	// The optimistic lock keeps a finalizer that another client added meanwhile.
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	refused := r.Client.Patch(ctx, s.object, patch)
	if !apierrors.IsInvalid(refused) || before.Undecodable == "" {
		return refused
	}
	data, err := patch.Data(s.object)
	if err != nil {
		return fmt.Errorf("encode the removal of the finalizer: %w", err)
	}
	without := map[string]any{}
	for range maxReleases {
		if !add(without, refused) {
			return refused
		}
		if data, err = withSpec(data, without); err != nil {
			return err
		}
		refused = r.Client.Patch(ctx, before.DeepCopy(), client.RawPatch(types.MergePatchType, data))
		if !apierrors.IsInvalid(refused) {
			return refused
		}
	}
	return refused
}

// add adds the fields of spec that the API server refuses, and reports whether there are new ones.
func add(without map[string]any, refused error) bool {
	var status apierrors.APIStatus
	if !errors.As(refused, &status) || status.Status().Details == nil {
		return false
	}
	known := len(without)
	for _, cause := range status.Status().Details.Causes {
		path, ok := strings.CutPrefix(cause.Field, "spec.")
		if !ok {
			continue
		}
		if end := strings.IndexAny(path, ".["); end >= 0 {
			path = path[:end]
		}
		without[path] = nil
	}
	return len(without) > known
}

// withSpec returns a merge patch with spec set.
func withSpec(patch []byte, spec map[string]any) ([]byte, error) {
	var fields map[string]any
	if err := json.Unmarshal(patch, &fields); err != nil {
		return nil, fmt.Errorf("read the removal of the finalizer: %w", err)
	}
	fields["spec"] = spec
	data, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encode the removal of the finalizer: %w", err)
	}
	return data, nil
}
