package redact

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// recorder is a recorder of Events that redacts secrets.
type recorder struct {
	events.EventRecorder
	secrets *Registry
}

// NewRecorder wraps a recorder of Events.
func NewRecorder(inner events.EventRecorder, secrets *Registry) events.EventRecorder {
	return &recorder{inner, secrets}
}

// Eventf implements events.EventRecorder. An Event is read in the namespace of what it is about, so the secrets of that
// namespace are removed; of an object without a namespace, those of all.
func (r *recorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	note = fmt.Sprintf(note, args...)
	if about, err := meta.Accessor(regarding); err == nil && about.GetNamespace() != "" {
		note = r.secrets.Text(about.GetNamespace(), note)
	} else {
		note = r.secrets.AnyText(note)
	}
	r.EventRecorder.Eventf(regarding, related, kind, reason, action, "%s", note)
}

// kubeClient is a client of the cluster that redacts secrets in Skein's own objects.
type kubeClient struct {
	client.Client
	secrets *Registry
}

// NewClient wraps a client. It redacts the secrets of their namespace in objects of Skein's kinds when they are created
// and when their status is written. It does not change other writes: users are responsible for what they write into a
// spec.
func NewClient(inner client.Client, secrets *Registry) client.Client {
	return &kubeClient{inner, secrets}
}

// clean redacts a field of a Skein object.
func (c *kubeClient) clean(o client.Object, field string) {
	v := reflect.ValueOf(o)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Type().PkgPath() != reflect.TypeFor[skeinv1.Thread]().PkgPath() {
		return
	}
	if f := v.Elem().FieldByName(field); f.IsValid() && f.CanAddr() {
		c.secrets.Value(o.GetNamespace(), f.Addr().Interface())
	}
}

// Create implements client.Client.
func (c *kubeClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	c.clean(obj, "Spec")
	return c.Client.Create(ctx, obj, opts...)
}

// Status implements client.Client.
func (c *kubeClient) Status() client.SubResourceWriter {
	return &statusWriter{c.Client.Status(), c}
}

type statusWriter struct {
	client.SubResourceWriter
	client *kubeClient
}

// Update implements client.SubResourceWriter.
func (w *statusWriter) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	w.client.clean(obj, "Status")
	return w.SubResourceWriter.Update(ctx, obj, opts...)
}

// Patch implements client.SubResourceWriter.
func (w *statusWriter) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	w.client.clean(obj, "Status")
	return w.SubResourceWriter.Patch(ctx, obj, patch, opts...)
}
