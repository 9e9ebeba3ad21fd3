package objects

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine/definition"
)

// partial is an object that reports whether some of its fields could not be decoded.
type partial interface {
	client.Object
	DecodingProblem() string
}

// CheckDecoded returns a *definition.NotReadyError when fields of an object could not be decoded, and nil otherwise. Do
// not act on such an object: part of its content is unknown.
func CheckDecoded(o client.Object) *definition.NotReadyError {
	if p, ok := o.(partial); ok && p.DecodingProblem() != "" {
		return NotReady(skeinv1.ReasonInvalidSpec, "%s", p.DecodingProblem())
	}
	return nil
}

// decodedReader returns only objects that were decoded completely. For others, Get returns a *definition.NotReadyError
// and List omits the object, so that a broken object affects only what names it (K8S-08).
type decodedReader struct {
	client.Reader
	scheme *runtime.Scheme
}

// NewDecodedReader returns a reader of the objects of r that were decoded completely.
func NewDecodedReader(r client.Reader) client.Reader {
	s := runtime.NewScheme()
	_ = skeinv1.AddToScheme(s) // fails only for types that are registered twice
	return &decodedReader{Reader: r, scheme: s}
}

// Get implements client.Reader.
func (r *decodedReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := r.Reader.Get(ctx, key, o, opts...); err != nil {
		return err
	}
	if err := CheckDecoded(o); err != nil {
		kind := "object"
		if gvk, unknown := apiutil.GVKForObject(o, r.scheme); unknown == nil {
			kind = gvk.Kind
		}
		return NotReady(err.Reason, "%s %q: %s", kind, key.Name, err.Message)
	}
	return nil
}

// List implements client.Reader.
func (r *decodedReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := r.Reader.List(ctx, list, opts...); err != nil {
		return err
	}
	var whole []runtime.Object
	left := false
	err := meta.EachListItem(list, func(o runtime.Object) error {
		if c, ok := o.(client.Object); ok && CheckDecoded(c) != nil {
			left = true
			return nil
		}
		whole = append(whole, o)
		return nil
	})
	if err != nil || !left {
		return err
	}
	return meta.SetList(list, whole)
}
