package main

import (
	"context"
	"maps"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// stored has the UIDs of the objects of a cluster by their names.
type stored struct {
	client.Client
	uids map[string]string
}

func (s stored) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	uid, there := s.uids[key.Name]
	if !there {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "scheduledeffects"}, key.Name)
	}
	o.SetUID(uidOf(uid))
	return nil
}

// Another command that restores the same backup may be ahead. A finished ScheduledEffect is deleted then, after its time.
func TestRestoreAssignsNoFiringsToEffectsThatAreGone(t *testing.T) {
	object := func(kind, name string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(skeinv1.GroupVersion.WithKind(kind))
		u.SetName(name)
		u.SetUID(uidOf("old-" + name))
		return u
	}
	r := &namespaceRestore{
		namespace: "ns",
		objects:   &objectClient{Client: stored{uids: map[string]string{"thread": "new-thread", "lives": "new-lives", "made-again": "of another"}}},
		uids: map[string]string{
			"old-thread": "new-thread", "old-lives": "new-lives", "old-gone": "new-gone", "old-made-again": "new-made-again",
		},
	}
	r.all = []*unstructured.Unstructured{
		object("Thread", "thread"), object("ScheduledEffect", "lives"), object("ScheduledEffect", "gone"), object("ScheduledEffect", "made-again"),
	}
	got, err := r.livingEffects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"old-lives": "new-lives"}; !maps.Equal(got, want) {
		t.Errorf("firings are assigned to %v, but of the ScheduledEffects there are %v", got, want)
	}
}
