package main

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

const (
	// checkPage is how many objects of a kind are read at a time.
	checkPage = 500
	// shownUnready bounds how many objects of a kind are shown that are not ready.
	shownUnready = 5
)

// kinds returns the kinds of Skein's API.
func kinds() (out []string) {
	scheme := runtime.NewScheme()
	if skeinv1.AddToScheme(scheme) != nil {
		return nil
	}
	for kind := range scheme.KnownTypes(skeinv1.GroupVersion) {
		if name, isList := strings.CutSuffix(kind, "List"); isList {
			out = append(out, name)
		}
	}
	return out
}

// resources returns the names of the kinds in URLs.
func resources() (out []string) {
	for _, kind := range kinds() {
		out = append(out, strings.ToLower(kind)+"s") // true for all of them
	}
	return out
}

// checkObjects looks for objects that are not ready. Conditions are read from the objects as they are, so that an object that this
// version cannot decode is counted too.
func checkObjects(ctx context.Context, c *checker, say say) error {
	fine := 0
	for _, kind := range kinds() {
		if kind == "SandboxPool" {
			continue // they have a check of their own
		}
		bad, total := 0, 0
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(skeinv1.GroupVersion.WithKind(kind + "List"))
		for token := ""; ; {
			if err := c.client.List(ctx, list, client.Limit(checkPage), client.Continue(token)); err != nil {
				return ignoreNoKind(err)
			}
			for i := range list.Items {
				o := &list.Items[i]
				total++
				reason := unready(conditionsOf(o))
				if reason == "" {
					continue
				}
				if bad++; bad <= shownUnready {
					say(levelWarning, "", "%s %s/%s is not ready: %s", kind, o.GetNamespace(), o.GetName(), reason)
				}
			}
			if token = list.GetContinue(); token == "" {
				break
			}
		}
		if bad > shownUnready {
			say(levelWarning, fmt.Sprintf("kubectl get %s -A", strings.ToLower(kind)), "%d more of %d objects of the kind %s are not ready", bad-shownUnready, total, kind)
		}
		fine += total - bad
	}
	say(levelOK, "", "%d objects are ready or have ended", fine)
	return nil
}

func conditionsOf(o *unstructured.Unstructured) (out []metav1.Condition) {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions") // one without conditions is new
	for _, entry := range list {
		fields, ok := entry.(map[string]any)
		if !ok {
			continue
		}
		text := func(name string) string { s, _ := fields[name].(string); return s }
		out = append(out, metav1.Condition{Type: text("type"), Status: metav1.ConditionStatus(text("status")), Reason: text("reason"), Message: text("message")})
	}
	return out
}

// unready returns why an object is not ready, or "".
func unready(conditions []metav1.Condition) string {
	c := meta.FindStatusCondition(conditions, skeinv1.ConditionReady)
	if c == nil || c.Status == metav1.ConditionTrue {
		return ""
	}
	if c.Message == "" {
		return c.Reason
	}
	return c.Reason + ": " + c.Message
}

// ignoreNoKind drops the error about a kind that the cluster does not have: the check of the definitions tells that.
func ignoreNoKind(err error) error {
	if meta.IsNoMatchError(err) {
		return nil
	}
	return err
}
