package conformance

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// always is a step that answers any number of times.
func always(text string) skeinv1.ScriptStep {
	s := harness.Answer(text)
	s.Times = ptr.To[int32](0)
	return s
}

// heldServer is a model that closes begun when it is first asked and, once release is closed, calls set_value.
func heldServer(begun, release chan struct{}) *harness.ChatServer {
	once := sync.OnceFunc(func() { close(begun) })
	return harness.NewChatServer(func(w http.ResponseWriter, r *http.Request, req harness.ChatRequest) {
		once()
		select {
		case <-release:
		case <-r.Context().Done():
			return
		}
		harness.CallTool(w, req.Model, "call_held", "set_value", `{"key":"k","value":1}`)
	})
}

// promptSettled tells what keeps a Prompt from being Ready at its present generation.
func promptSettled(ctx context.Context, ns, name string) error {
	var p skeinv1.Prompt
	if err := cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, &p); err != nil {
		return err
	}
	if p.Status.ObservedGeneration != p.Generation || !meta.IsStatusConditionTrue(p.Status.Conditions, skeinv1.ConditionReady) {
		return fmt.Errorf("prompt %s: generation %d, status %+v", name, p.Generation, p.Status)
	}
	return nil
}

// problemOf gives the message of a Prompt's Ready condition.
func problemOf(ctx context.Context, ns, name string) string {
	var p skeinv1.Prompt
	if err := cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, &p); err != nil {
		return err.Error()
	}
	if c := meta.FindStatusCondition(p.Status.Conditions, skeinv1.ConditionReady); c != nil {
		return c.Message
	}
	return ""
}
