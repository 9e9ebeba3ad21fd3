package main

import (
	"context"
	"errors"
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

// creates answers each creation with an error. It refuses creations that are no dry runs.
type creates struct {
	client.Client
	answer error
}

func (c creates) Create(_ context.Context, _ client.Object, opts ...client.CreateOption) error {
	if o := (&client.CreateOptions{}).ApplyOptions(opts); len(o.DryRun) == 0 {
		return errors.New("this is no dry run")
	}
	return c.answer
}

func TestAWebhookThatCannotAnswerADryRunIsNoRefusal(t *testing.T) {
	threads := schema.GroupResource{Group: skeinv1.GroupVersion.Group, Resource: "threads"}
	for _, c := range []struct {
		answer error
		may    bool
	}{
		{answer: nil, may: true},
		{answer: apierrors.NewAlreadyExists(threads, "t"), may: true},
		{answer: apierrors.NewBadRequest(`admission webhook "audit.example" does not support dry run`), may: true},
		{answer: apierrors.NewBadRequest("the object is no Thread")},
		{answer: apierrors.NewForbidden(threads, "t", errors.New("you may not"))},
	} {
		if err := mayCreate(context.Background(), creates{answer: c.answer}, &skeinv1.Thread{}); (err == nil) != c.may {
			t.Errorf("after %v: %v", c.answer, err)
		}
	}
}
