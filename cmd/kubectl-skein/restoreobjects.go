package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

func uidOf(s string) types.UID { return types.UID(s) }

// namespaceRestore restores one namespace.
type namespaceRestore struct {
	p         *plugin
	o         restoreOptions
	backup    *openedBackup
	entry     backupNamespace
	client    *runtimeclient.Client
	restore   *runtimeclient.Restore
	objects   *objectClient
	namespace string

	state *runtimev1.RestoreState
	all   []*unstructured.Unstructured // in the order in which they are made
	uids  map[string]string            // from the backup to this cluster
}

// held are the kinds on which controllers act only when all objects are made.
var held = []string{"Thread", "Subagent", "ScheduledEffect"}

// check finds out what keeps the restore from being made, before anything is written.
func (r *namespaceRestore) check(ctx context.Context, cfg *rest.Config) error {
	if r.entry.Summary == nil {
		return errNotWhole
	}
	core, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return err
	}
	if _, err := core.Namespaces().Get(ctx, r.namespace, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return fmt.Errorf("it does not exist: kubectl create namespace %s, or restore into another one with --namespace-map", r.namespace)
	}
	if r.state, err = r.begin(ctx); err != nil {
		return err
	}
	if n, living := r.state.Restored, r.backup.living[r.entry.Name]; (n > 0 || r.state.Finished) && n < living {
		return fmt.Errorf("this backup was restored here before, and %d of its %d threads were deleted since: all threads of a backup are restored together, so delete the other %d, or restore into another installation",
			living-n, living, n)
	}
	all, err := parseObjects(r.backup.objects[r.entry.Name])
	if err != nil {
		return err
	}
	stored := map[string]bool{}
	for _, id := range r.backup.threads[r.entry.Name] {
		stored[id] = true
	}
	for _, u := range inOrder(all) {
		if id, _, _ := unstructured.NestedString(u.Object, "status", "threadID"); u.GetKind() == "Thread" && id != "" && !stored[id] {
			fmt.Fprintf(r.p.ErrOut, "thread/%s is left out: it was deleted while the backup was made\n", u.GetName())
			continue
		}
		if err := r.mayMake(ctx, u); err != nil {
			return err
		}
		r.all = append(r.all, u)
	}
	fmt.Fprintf(r.p.Out, "%s: %d objects, %d threads, %d messages, %d contents of files from backup %s of %s\n", r.namespace, len(r.all),
		len(r.backup.threads[r.entry.Name]), r.entry.Summary.Rows["message"], r.entry.Summary.Contents, r.backup.manifest.ID, r.backup.manifest.CreatedAt.Format(time.RFC3339))
	return nil
}

// mayMake returns an error when an object cannot be made: another object has its name and must not be left in place, or the API server refuses it.
func (r *namespaceRestore) mayMake(ctx context.Context, u *unstructured.Unstructured) error {
	have := r.like(u)
	err := r.objects.Get(ctx, client.ObjectKeyFromObject(have), have)
	switch {
	case err == nil && slices.Contains(held, u.GetKind()) && !r.ours(have):
		return fmt.Errorf("%s %q exists already, and nothing was restored: delete it if the backup is to replace it", u.GetKind(), u.GetName())
	case err == nil:
		return nil
	case !apierrors.IsNotFound(err):
		return err
	}
	o, err := r.objectOf(u)
	if err != nil {
		return err
	}
	if err := mayCreate(ctx, r.objects, o); err != nil {
		return fmt.Errorf("nothing was restored, because %s %q cannot be created: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}

// mayCreate asks the API server whether the user may create an object. It returns nil when an object of the name exists, and when an admission
// webhook of the cluster cannot say it without the creation.
func mayCreate(ctx context.Context, objects client.Client, o client.Object) error {
	err := objects.Create(ctx, o, client.DryRunAll)
	if apierrors.IsAlreadyExists(err) || apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "does not support dry run") {
		return nil
	}
	return err
}

func (r *namespaceRestore) ours(u *unstructured.Unstructured) bool {
	return u.GetAnnotations()[skeinv1.AnnotationRestored] == r.backup.manifest.ID
}

// like returns an empty object of the same kind and name in the target namespace.
func (r *namespaceRestore) like(u *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(u.GroupVersionKind())
	out.SetNamespace(r.namespace)
	out.SetName(u.GetName())
	return out
}

func (r *namespaceRestore) run(ctx context.Context) error {
	if !r.state.Finished && r.state.Restored == 0 {
		if err := r.send(ctx); err != nil {
			return err
		}
		if err := r.restore.Finish(ctx, r.entry.Summary.Rows); err != nil {
			return err
		}
	}
	r.uids = map[string]string{}
	for _, u := range r.all {
		if err := r.make(ctx, u); err != nil {
			return fmt.Errorf("%s %q: %w", u.GetKind(), u.GetName(), err)
		}
	}
	// Threads go on before what belongs to them; all of it exists by now.
	if err := r.letGo(ctx, "Thread"); err != nil {
		return err
	}
	if err := r.adopted(ctx); err != nil {
		return err
	}
	if err := r.effects(ctx); err != nil {
		return err
	}
	for _, kind := range held[1:] {
		if err := r.letGo(ctx, kind); err != nil {
			return err
		}
	}
	fmt.Fprintf(r.p.Out, "%s: restored\n", r.namespace)
	return nil
}

// objectOf returns the object to create for one of the backup, with its owners.
func (r *namespaceRestore) objectOf(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	o := r.like(u)
	annotations := map[string]string{}
	for k, v := range u.GetAnnotations() {
		annotations[k] = v
	}
	annotations[skeinv1.AnnotationRestored] = r.backup.manifest.ID
	if slices.Contains(held, u.GetKind()) {
		annotations[skeinv1.AnnotationRestoring] = r.backup.manifest.ID
	}
	o.SetLabels(u.GetLabels())
	o.SetAnnotations(annotations)
	o.SetOwnerReferences(ownersIn(u.GetOwnerReferences(), r.uids))
	for field, value := range u.Object {
		switch field {
		case "apiVersion", "kind", "metadata", "status":
		default:
			o.Object[field] = runtime.DeepCopyJSONValue(value)
		}
	}
	if id, _, _ := unstructured.NestedString(u.Object, "status", "threadID"); u.GetKind() == "Thread" && id != "" {
		if err := unstructured.SetNestedField(o.Object, id, "spec", "threadID"); err != nil {
			return nil, err
		}
		unstructured.RemoveNestedField(o.Object, "spec", "forkFrom") // it was forked already
	}
	return o, nil
}

// make creates an object, with its owners and its status. Controllers leave those of the held kinds alone.
func (r *namespaceRestore) make(ctx context.Context, u *unstructured.Unstructured) error {
	hold := slices.Contains(held, u.GetKind())
	o := r.like(u)
	err := r.objects.Get(ctx, client.ObjectKeyFromObject(o), o)
	if apierrors.IsNotFound(err) {
		if o, err = r.objectOf(u); err != nil {
			return err
		}
		if err = r.objects.Create(ctx, o); apierrors.IsAlreadyExists(err) {
			o = r.like(u)
			err = r.objects.Get(ctx, client.ObjectKeyFromObject(o), o)
		}
	}
	if err != nil {
		return err
	}
	if !r.ours(o) && hold {
		return fmt.Errorf("it exists already: delete it if the backup is to replace it")
	}
	if !r.ours(o) {
		fmt.Fprintf(r.p.Out, "%s: %s %s exists, and stays as it is\n", r.namespace, u.GetKind(), u.GetName())
	}
	r.uids[string(u.GetUID())] = string(o.GetUID())
	if hold && o.GetAnnotations()[skeinv1.AnnotationRestoring] != "" {
		return r.status(ctx, u, o)
	}
	return nil
}

// status writes the status that an object had in the backup.
func (r *namespaceRestore) status(ctx context.Context, u, o *unstructured.Unstructured) error {
	status, there, err := unstructured.NestedMap(u.Object, "status")
	if err != nil || !there {
		return err
	}
	if seen, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration"); seen == u.GetGeneration() {
		status["observedGeneration"] = o.GetGeneration()
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		// The version is sent, because another command may have let the controllers act on the object since it was read.
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": o.GetResourceVersion()}, "status": status})
		if err != nil {
			return err
		}
		conflict := r.objects.Status().Patch(ctx, o.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
		if !apierrors.IsConflict(conflict) {
			return conflict
		}
		if err := r.objects.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if o.GetAnnotations()[skeinv1.AnnotationRestoring] == "" {
			return nil // the status is the controllers' now
		}
		return conflict
	})
}

// letGo lets the controllers act on the objects of a kind.
func (r *namespaceRestore) letGo(ctx context.Context, kind string) error {
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, skeinv1.AnnotationRestoring))
	for _, u := range r.all {
		if u.GetKind() != kind {
			continue
		}
		if err := r.objects.Patch(ctx, r.like(u), patch); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("%s %q: %w", kind, u.GetName(), err)
		}
	}
	return nil
}

// adopted waits until the Threads have their data.
func (r *namespaceRestore) adopted(ctx context.Context) error {
	wanted := map[string]string{}
	for _, u := range r.all {
		if id, _, _ := unstructured.NestedString(u.Object, "status", "threadID"); u.GetKind() == "Thread" && id != "" {
			wanted[id] = u.GetName()
		}
	}
	missing := ""
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, r.o.timeout, true, func(ctx context.Context) (bool, error) {
		missing = ""
		for after := ""; ; {
			page, err := r.client.Retained(ctx, r.namespace, after, runtimev1.MaxPageSize)
			if err != nil {
				return false, err
			}
			for _, t := range page.Threads {
				if name := wanted[t.ThreadID]; name != "" {
					missing = name
				}
				after = t.ThreadID
			}
			if !page.HasMore || missing != "" {
				return missing == "", nil
			}
		}
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("thread/%s has not taken over its data within %s: kubectl describe thread %s -n %s says why", missing, r.o.timeout, missing, r.namespace)
	}
	return err
}

// effects assigns the restored firings to the new ScheduledEffects.
func (r *namespaceRestore) effects(ctx context.Context) error {
	effects, err := r.livingEffects(ctx)
	if err != nil {
		return err
	}
	return r.restore.Effects(ctx, effects)
}

// livingEffects returns the UIDs that ScheduledEffects have here, by those in the backup. It leaves out those that are gone: another
// command may have let the controllers act on them, and finished ones are deleted after a time.
func (r *namespaceRestore) livingEffects(ctx context.Context) (map[string]string, error) {
	effects := map[string]string{}
	for _, u := range r.all {
		if u.GetKind() != "ScheduledEffect" {
			continue
		}
		uid, have := r.uids[string(u.GetUID())], r.like(u)
		if err := r.objects.Get(ctx, client.ObjectKeyFromObject(have), have); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("ScheduledEffect %q: %w", u.GetName(), err)
		} else if err == nil && string(have.GetUID()) == uid {
			effects[string(u.GetUID())] = uid
		}
	}
	return effects, nil
}
