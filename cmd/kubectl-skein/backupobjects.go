package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// objectClient reads and writes objects of skein.dev as they are, whatever fields they have.
type objectClient struct {
	client.Client
	kinds []string
}

func newObjects(cfg *rest.Config) (*objectClient, error) {
	scheme := runtime.NewScheme()
	if err := skeinv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	o := &objectClient{Client: c}
	known := scheme.KnownTypes(skeinv1.GroupVersion)
	for kind := range known {
		if _, lists := known[kind+"List"]; lists {
			o.kinds = append(o.kinds, kind)
		}
	}
	slices.Sort(o.kinds)
	return o, nil
}

// list calls fn for each object of a namespace, or of all.
func (o *objectClient) list(ctx context.Context, ns string, fn func(*unstructured.Unstructured) error) error {
	for _, kind := range o.kinds {
		for next := ""; ; {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(skeinv1.GroupVersion.WithKind(kind + "List"))
			err := o.List(ctx, list, client.InNamespace(ns), client.Limit(500), client.Continue(next))
			if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
				break // an earlier release of Skein is installed
			}
			if err != nil {
				return fmt.Errorf("list objects of kind %s: %w", kind, err)
			}
			for i := range list.Items {
				if err := fn(&list.Items[i]); err != nil {
					return err
				}
			}
			if next = list.GetContinue(); next == "" {
				break
			}
		}
	}
	return nil
}

// namespaces returns those that have objects.
func (o *objectClient) namespaces(ctx context.Context) ([]string, error) {
	found := map[string]bool{}
	err := o.list(ctx, "", func(u *unstructured.Unstructured) error {
		found[u.GetNamespace()] = true
		return nil
	})
	return slices.Sorted(maps.Keys(found)), err
}

// export returns the objects of a namespace as files, Kind/name.yaml. Objects that are being deleted are left out.
func (o *objectClient) export(ctx context.Context, ns string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := o.list(ctx, ns, func(u *unstructured.Unstructured) error {
		if u.GetDeletionTimestamp() != nil {
			return nil
		}
		u.SetManagedFields(nil)
		data, err := encodeObject(u.Object)
		if err != nil {
			return err
		}
		files[u.GetKind()+"/"+u.GetName()+".yaml"] = data
		return nil
	})
	return files, err
}

// encodeObject returns an object as YAML. YAML takes no control characters such as U+007F, and reads some others as ends of lines; a
// title may have any of them. An object with one is returned as JSON with these characters escaped, which is YAML too.
func encodeObject(object map[string]any) ([]byte, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	escaped := false
	for _, r := range string(data) { // what is not ASCII is within a string
		if r < 0x7f || r > 0xffff || unicode.IsPrint(r) {
			out.WriteRune(r)
		} else {
			escaped = true
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	if escaped {
		return out.Bytes(), nil
	}
	return yaml.Marshal(object)
}

// parseObjects reads the objects of a backup.
func parseObjects(files map[string][]byte) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, name := range slices.Sorted(maps.Keys(files)) {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(files[name], &u.Object); err != nil || u.GetName() == "" || !strings.HasPrefix(u.GetAPIVersion(), skeinv1.GroupVersion.Group+"/") {
			return nil, fmt.Errorf("%s is not an object of %s: the backup is damaged", name, skeinv1.GroupVersion.Group)
		}
		all = append(all, u)
	}
	return all, nil
}

// inOrder returns objects so that each follows its owners. Owners that are not among them do not count.
func inOrder(all []*unstructured.Unstructured) []*unstructured.Unstructured {
	byUID := map[string]*unstructured.Unstructured{}
	for _, u := range all {
		byUID[string(u.GetUID())] = u
	}
	var out []*unstructured.Unstructured
	placed := map[string]bool{}
	var place func(u *unstructured.Unstructured)
	place = func(u *unstructured.Unstructured) {
		if placed[string(u.GetUID())] {
			return
		}
		placed[string(u.GetUID())] = true
		for _, owner := range u.GetOwnerReferences() {
			if o := byUID[string(owner.UID)]; o != nil {
				place(o)
			}
		}
		out = append(out, u)
	}
	for _, u := range all {
		place(u)
	}
	return out
}

// ownersIn returns owner references with the new UIDs. Owners that were not restored are left out.
func ownersIn(refs []metav1.OwnerReference, uids map[string]string) (kept []metav1.OwnerReference) {
	for _, ref := range refs {
		if uid := uids[string(ref.UID)]; uid != "" {
			ref.UID = uidOf(uid)
			kept = append(kept, ref)
		}
	}
	return kept
}
