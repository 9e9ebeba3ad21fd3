package thread

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/controller/conditions"
	"github.com/skein-dev/skein/internal/controller/watches"
	"github.com/skein-dev/skein/internal/engine/definition"
	"github.com/skein-dev/skein/internal/kube/objects"
)

// checkAgent checks whether the thread's agent can run it. It wakes a thread whose work waited for that.
func (r *Reconciler) checkAgent(ctx context.Context, s *scope) (bool, error) {
	if s.problem != nil || s.row == nil {
		return false, nil
	}
	name := s.row.Agent
	var a skeinv1.Agent
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.object.Namespace, Name: name}, &a, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		s.problem = &problem{skeinv1.ReasonReferenceNotFound,
			fmt.Sprintf("Agent %q does not exist in namespace %q: create it, or correct spec.agentRef", name, s.object.Namespace)}
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read Agent %q: %w", name, err)
	}
	s.agentSpec = &a.Spec
	switch c := conditions.Ready(a.Status.Conditions); c.Status {
	case metav1.ConditionFalse:
		s.problem = &problem{skeinv1.ReasonReferenceNotReady, fmt.Sprintf("Agent %q is not ready: %s", name, c.Message)}
	case metav1.ConditionUnknown:
		s.problem = &problem{skeinv1.ReasonReferenceNotReady, fmt.Sprintf("Agent %q has not been checked yet", name)}
	default:
		if s.problem, err = r.checkArguments(ctx, s, &a); s.problem != nil || err != nil {
			return false, err
		}
		// A run that found a definition missing has left its work in the inbox (K8S-02).
		if conditions.Ready(s.object.Status.Conditions).Status != metav1.ConditionTrue {
			r.Engine.Wake(s.row.ID)
		}
	}
	return false, nil
}

// checkArguments checks the arguments of a thread against the schemas of its agent's prompts (AGT-05).
func (r *Reconciler) checkArguments(ctx context.Context, s *scope, a *skeinv1.Agent) (*problem, error) {
	for _, name := range objects.PromptsOf(&a.Spec) {
		var p skeinv1.Prompt
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.object.Namespace, Name: name}, &p, client.UnsafeDisableDeepCopy)
		if apierrors.IsNotFound(err) {
			continue // the agent's condition reports it
		}
		if err != nil {
			return nil, fmt.Errorf("read Prompt %q: %w", name, err)
		}
		if err := definition.CheckArguments(&p.Spec, s.row.Arguments); err != nil && s.object.Spec.Arguments == nil && s.row.ParentID != "" {
			// The error may quote the arguments, which a model gave.
			return &problem{skeinv1.ReasonInvalidArguments, fmt.Sprintf(
				"the arguments that the parent gave do not fit spec.requiredSchema of Prompt %q: start another subagent with other arguments", name)}, nil
		} else if err != nil {
			return &problem{skeinv1.ReasonInvalidArguments, fmt.Sprintf(
				"spec.arguments do not fit spec.requiredSchema of Prompt %q: %v. Create a new Thread with other arguments: they are fixed when a thread is created", name, err)}, nil
		}
	}
	return nil, nil
}

// agentReady has the threads of an agent that becomes ready go on at once, if they wait for that. It enqueues nothing: the agent may have
// thousands of threads, whose statuses can wait.
func (r *Reconciler) agentReady(reader client.Reader) handler.EventHandler {
	isReady := func(o client.Object) bool {
		a, ok := o.(*skeinv1.Agent)
		return ok && conditions.Ready(a.Status.Conditions).Status == metav1.ConditionTrue
	}
	wake := func(ctx context.Context, o client.Object) {
		var threads skeinv1.ThreadList
		err := reader.List(ctx, &threads, client.InNamespace(o.GetNamespace()), client.MatchingFields{objects.IndexAgent: o.GetName()}, client.UnsafeDisableDeepCopy)
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "cannot find the threads of an agent that became ready; they are tried again later", "agent", o.GetName())
		}
		for i := range threads.Items {
			r.Engine.WakeRefused(threads.Items[i].ThreadID())
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, _ workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			if isReady(e.Object) {
				wake(ctx, e.Object)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, _ workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			if isReady(e.ObjectNew) && !isReady(e.ObjectOld) {
				wake(ctx, e.ObjectNew)
			}
		},
	}
}

// threadsOfPrompt maps a prompt to the threads of the agents that use it.
func threadsOfPrompt(reader client.Reader) handler.MapFunc {
	return func(ctx context.Context, o client.Object) []ctrl.Request {
		var out []ctrl.Request
		for _, agent := range watches.Requests(ctx, reader, &skeinv1.AgentList{}, o.GetNamespace(), objects.IndexPrompt, o.GetName()) {
			out = append(out, watches.Requests(ctx, reader, &skeinv1.ThreadList{}, o.GetNamespace(), objects.IndexAgent, agent.Name)...)
		}
		return out
	}
}

// requiredSchemaChanged passes edits of a prompt's required schema. Other changes of a prompt arrive through its
// agents.
func requiredSchemaChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			was, is := e.ObjectOld.(*skeinv1.Prompt).Spec.RequiredSchema, e.ObjectNew.(*skeinv1.Prompt).Spec.RequiredSchema
			return !equality.Semantic.DeepEqual(was, is)
		},
	}
}
