package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/user"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/cmd/kubectl-skein/internal/build"
)

// labelDev marks the namespaces of kubectl skein dev with their user.
const labelDev = "skein.dev/dev"

// fieldOwner is who applies objects.
const fieldOwner = client.FieldOwner("kubectl-skein-dev")

// scratch is a namespace in which a session of development has its objects.
type scratch struct {
	client.Client
	say       func(format string, args ...any)
	namespace *corev1.Namespace
	made      bool // by this session
	// applied are the objects of this session, by their ids.
	applied map[string]*scratchObject
	threads []string
}

type scratchObject struct {
	object  *unstructured.Unstructured
	data    string // what was applied
	existed bool   // before the session
}

// newScratch makes the namespace, or takes that of --namespace, and has the plugin use it.
func (p *plugin) newScratch(ctx context.Context, say func(string, ...any)) (*scratch, error) {
	cfg, err := p.flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(skeinv1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	s := &scratch{say: say, applied: map[string]*scratchObject{}}
	if s.Client, err = client.New(cfg, client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	if err := s.takeNamespace(ctx, *p.flags.Namespace); err != nil {
		return nil, err
	}
	p.scratch = s.namespace.Name
	return s, nil
}

func (s *scratch) takeNamespace(ctx context.Context, given string) error {
	who := devUser()
	s.namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: given, Labels: map[string]string{labelDev: who}}}
	if given == "" {
		s.listEarlier(ctx, who)
		s.namespace.Name = "skein-dev-" + who
	}
	err := s.Create(ctx, s.namespace)
	if apierrors.IsAlreadyExists(err) && given == "" { // another session, or one that is being deleted
		s.namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "skein-dev-" + who + "-", Labels: s.namespace.Labels}}
		err = s.Create(ctx, s.namespace)
	}
	switch {
	case err == nil:
		s.made = true
		s.say("namespace %s created", s.namespace.Name)
		return nil
	case given != "" && (apierrors.IsAlreadyExists(err) || apierrors.IsForbidden(err)):
		return nil // what is not allowed in it is told by the first object
	case apierrors.IsForbidden(err):
		return fmt.Errorf("you may not create a namespace: name one that exists with --namespace (%w)", err)
	}
	return err
}

// listEarlier names the namespaces that earlier sessions have left.
func (s *scratch) listEarlier(ctx context.Context, who string) {
	var list corev1.NamespaceList
	if s.List(ctx, &list, client.MatchingLabels{labelDev: who}) != nil {
		return // who may not list namespaces does without
	}
	var names []string
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			names = append(names, list.Items[i].Name)
		}
	}
	if len(names) > 0 {
		s.say("your other sessions have left namespaces; to remove them: kubectl delete namespace %s", strings.Join(names, " "))
	}
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// devUser returns the name of the person at this machine in the form of names of objects.
func devUser() string {
	name := ""
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	name = notInNames.ReplaceAllString(strings.ToLower(name), "-")
	return orElse(strings.Trim(name[:min(len(name), 40)], "-"), "somebody")
}

// apply applies what has changed, and deletes what is no more.
func (s *scratch) apply(ctx context.Context, res *build.Result) error {
	wanted := map[string]bool{}
	pool := false
	for _, o := range res.Objects {
		pool = pool || o.Kind() == "SandboxPool"
		id := o.APIVersion() + " " + o.String()
		wanted[id] = true
		if err := s.applyOne(ctx, id, o.String(), o.Fields); err != nil {
			return fmt.Errorf("%s: %w", o, err)
		}
	}
	if !pool {
		id, err := s.defaultPool(ctx)
		if err != nil {
			return err
		}
		wanted[id] = true
	}
	for id, old := range s.applied {
		if wanted[id] {
			continue
		}
		if err := s.drop(ctx, old); err != nil {
			return err
		}
		s.say("%s/%s deleted", strings.ToLower(old.object.GetKind()), old.object.GetName())
		delete(s.applied, id)
	}
	return nil
}

func (s *scratch) applyOne(ctx context.Context, id, name string, fields map[string]any) error {
	data, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	before := s.applied[id]
	if before != nil && before.data == string(data) {
		return nil
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(data, &u.Object); err != nil {
		return err
	}
	namespaced, err := s.IsObjectNamespaced(u)
	if err != nil {
		return err
	}
	if !namespaced {
		return errors.New("dev applies only objects of a namespace: apply this one yourself, and take it out of the folder")
	}
	u.SetNamespace(s.namespace.Name)
	o := &scratchObject{object: u, data: string(data)}
	if before != nil {
		o.existed = before.existed
	} else {
		found := &unstructured.Unstructured{}
		found.SetGroupVersionKind(u.GroupVersionKind())
		err := s.Get(ctx, client.ObjectKeyFromObject(u), found)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		o.existed = err == nil
	}
	if err := s.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner, client.ForceOwnership); err != nil {
		return err
	}
	s.applied[id] = o
	s.say("%s applied", name)
	return nil
}

// defaultPool makes the pool in which code runs, where the namespace has none.
func (s *scratch) defaultPool(ctx context.Context) (id string, err error) {
	id = skeinv1.GroupVersion.String() + " sandboxpool/default"
	if s.applied[id] != nil {
		return id, nil
	}
	var pools skeinv1.SandboxPoolList
	if err := s.List(ctx, &pools, client.InNamespace(s.namespace.Name)); err != nil || len(pools.Items) > 0 {
		return id, err
	}
	return id, s.applyOne(ctx, id, "sandboxpool/default", map[string]any{
		"apiVersion": skeinv1.GroupVersion.String(), "kind": "SandboxPool", "metadata": map[string]any{"name": "default"}, "spec": map[string]any{"warm": 1},
	})
}

// readyTime bounds how long an agent takes to become Ready.
const readyTime = 2 * time.Minute

// awaitAgent waits until the agent is Ready, and says what it waits for.
func (s *scratch) awaitAgent(ctx context.Context, name string) error {
	said := ""
	var a skeinv1.Agent
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, readyTime, true, func(ctx context.Context) (bool, error) {
		if err := s.Get(ctx, client.ObjectKey{Namespace: s.namespace.Name, Name: name}, &a); err != nil {
			return false, err
		}
		r := meta.FindStatusCondition(a.Status.Conditions, skeinv1.ConditionReady)
		if r == nil || r.ObservedGeneration != a.Generation {
			return false, nil
		}
		if why := fmt.Sprintf("agent/%s waits: %s: %s", name, r.Reason, safe(r.Message)); r.Status != metav1.ConditionTrue && why != said {
			said = why
			s.say("%s", why)
		}
		return r.Status == metav1.ConditionTrue, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("agent/%s was not Ready within %s: %s", name, readyTime, orElse(said, "no controller has seen it; see kubectl skein check"))
	}
	return err
}

// remove deletes what the session has made.
func (s *scratch) remove(ctx context.Context, keep bool) error {
	ns := s.namespace.Name
	if keep {
		s.say("kept namespace %s", ns)
		return nil
	}
	if s.made {
		err := s.Delete(ctx, s.namespace, client.Preconditions{UID: &s.namespace.UID})
		if err = client.IgnoreNotFound(err); err != nil {
			return fmt.Errorf("namespace %s is still there: kubectl delete namespace %s (%w)", ns, ns, err)
		}
		s.say("namespace %s deleted", ns)
		return nil
	}
	var failed []error
	for _, name := range s.threads {
		t := &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
		failed = append(failed, client.IgnoreNotFound(s.Delete(ctx, t)))
	}
	for _, o := range s.applied {
		failed = append(failed, s.drop(ctx, o))
	}
	s.say("removed from namespace %s what this session made", ns)
	return errors.Join(failed...)
}

// drop deletes an object, unless it was there before the session.
func (s *scratch) drop(ctx context.Context, o *scratchObject) error {
	if o.existed {
		return nil
	}
	return client.IgnoreNotFound(s.Delete(ctx, o.object))
}
