package objects

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// maxContents bounds the number of remembered keys of Secrets and ConfigMaps.
const maxContents = 2048

// Contents reads single keys of Secrets and ConfigMaps. Its cache of objects holds only their metadata, which is
// small and contains no secret. It reads a key from the API server on demand and remembers the value until the
// object's resource version changes.
type Contents struct {
	metadata client.Reader
	live     client.Reader
	account  Account
	read     *lru.Cache // contentKey → content
}

// NewContents returns a reader of keys. metadata reads PartialObjectMetadata from a cache; live reads from the API
// server.
func NewContents(metadata, live client.Reader) *Contents {
	return &Contents{metadata: metadata, live: live, account: "system:serviceaccount:skein-system:skein-manager", read: lru.New(maxContents)}
}

// For sets the account of the manager, which errors about Secrets that it may not read name. Call it before the reader is used.
func (c *Contents) For(a Account) { c.account = a }

type contentKey struct{ kind, namespace, name, key string }

type content struct {
	version string
	data    []byte
}

// SecretKey returns the value of a Secret's key, and a version that changes when the value does. When the Secret or
// the key is missing it returns a *definition.NotReadyError that names both, or an empty value when the selector is
// optional.
func (c *Contents) SecretKey(ctx context.Context, namespace string, sel corev1.SecretKeySelector, field string) ([]byte, string, error) {
	k := contentKey{"Secret", namespace, sel.Name, sel.Key}
	return c.get(ctx, k, field, sel.Optional, func(ctx context.Context) (map[string][]byte, string, error) {
		var s corev1.Secret
		err := c.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: sel.Name}, &s)
		return s.Data, s.ResourceVersion, err
	})
}

// ConfigMapKey does for ConfigMaps what SecretKey does for Secrets.
func (c *Contents) ConfigMapKey(ctx context.Context, namespace string, sel corev1.ConfigMapKeySelector, field string) ([]byte, string, error) {
	k := contentKey{"ConfigMap", namespace, sel.Name, sel.Key}
	return c.get(ctx, k, field, sel.Optional, func(ctx context.Context) (map[string][]byte, string, error) {
		var m corev1.ConfigMap
		err := c.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: sel.Name}, &m)
		data := m.BinaryData
		if v, ok := m.Data[sel.Key]; ok {
			data = map[string][]byte{sel.Key: []byte(v)}
		}
		return data, m.ResourceVersion, err
	})
}

func (c *Contents) get(ctx context.Context, k contentKey, field string, optional *bool, read func(context.Context) (map[string][]byte, string, error)) ([]byte, string, error) {
	absent := func() ([]byte, string, error) {
		c.read.Remove(k)
		if optional != nil && *optional {
			return nil, "absent", nil
		}
		return nil, "", NotReady(skeinv1.ReasonReferenceNotFound,
			"%s %q with key %q does not exist in namespace %q: create it, or correct %s", k.kind, k.name, k.key, k.namespace, field)
	}
	failed := func(err error) ([]byte, string, error) {
		switch {
		case apierrors.IsNotFound(err):
			return absent()
		case apierrors.IsForbidden(err) && k.kind == "Secret":
			c.read.Remove(k)
			return nil, "", NotReady(skeinv1.ReasonSecretForbidden, "%s needs Secret %q, and the manager may not read Secrets of namespace %q: %s",
				field, k.name, k.namespace, c.account.Bind(RoleSecretReader, k.namespace))
		}
		return nil, "", fmt.Errorf("read %s %q: %w", k.kind, k.name, err)
	}
	meta := MetadataOf(k.kind)
	if err := c.metadata.Get(ctx, client.ObjectKey{Namespace: k.namespace, Name: k.name}, meta); err != nil {
		return failed(err)
	}
	if v, ok := c.read.Get(k); ok && v.(content).version == meta.ResourceVersion {
		return v.(content).data, meta.ResourceVersion, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	data, version, err := read(ctx)
	if err != nil {
		return failed(err)
	}
	value, ok := data[k.key]
	if !ok {
		return absent()
	}
	// The value is remembered under the version that was read. When the cached metadata is older, the next call reads
	// again.
	c.read.Add(k, content{version: version, data: value})
	return value, version, nil
}

// MetadataOf returns an object with which only the metadata of a core kind is read and watched.
func MetadataOf(kind string) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return m
}
