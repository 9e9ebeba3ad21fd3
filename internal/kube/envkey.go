package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/envkeys"
)

const (
	// EnvKeyReload is the interval at which each replica reads the Secret again, so that it soon uses a new primary
	// key.
	EnvKeyReload = 15 * time.Second
	// envKeyRefresh is the minimum time between two reads that values under an unknown key cause.
	envKeyRefresh = time.Second
	// envKeyPatience bounds one read, because other callers wait for it.
	envKeyPatience = 10 * time.Second
)

// EnvKeys keeps a keyring in step with its Secret in the manager's namespace.
type EnvKeys struct {
	Client    client.Client // reads from the API server
	Namespace string
	Secret    string
	Ring      *envkeys.Keyring
	// MakeNamespace makes Load create a missing namespace, for a manager that runs outside the cluster.
	MakeNamespace bool
	// InUse reports whether values are sealed already. If so, a missing Secret counts as lost, and Load does not
	// create a new one in its place.
	InUse  func(ctx context.Context) (bool, error)
	Clock  clock.WithTicker
	Logger logr.Logger

	mu      sync.Mutex
	looked  time.Time // when the last read began; mu guards this and the fields below
	version string    // of the Secret that the keyring has
	trouble string    // the error text that was logged last
}

// Load reads the keys. It creates the Secret when there is none and nothing is sealed yet. Without keys the manager
// still works, but variables of threads do not; the log says why.
func (k *EnvKeys) Load(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.look(ctx)
}

// Refresh reads the keys again after a caller met a key that the keyring does not have, because another replica may
// have seen a new key first. One read serves all callers that ask at the same time, and reads are at least a second
// apart.
func (k *EnvKeys) Refresh(ctx context.Context) {
	asked := k.Clock.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.looked.After(asked) {
		return // another caller has read the Secret meanwhile
	}
	if wait := envKeyRefresh - k.Clock.Since(k.looked); wait > 0 {
		select {
		case <-ctx.Done():
			return
		case <-k.Clock.After(wait):
		}
	}
	k.look(ctx)
}

// look reads the Secret and logs a failure. mu is held.
func (k *EnvKeys) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, envKeyPatience)
	defer cancel()
	k.looked = k.Clock.Now()
	k.logNew(k.load(ctx))
}

func (k *EnvKeys) load(ctx context.Context) error {
	var s corev1.Secret
	key := client.ObjectKey{Namespace: k.Namespace, Name: k.Secret}
	err := k.Client.Get(ctx, key, &s)
	if apierrors.IsNotFound(err) {
		if err = k.create(ctx); err == nil || apierrors.IsAlreadyExists(err) {
			err = k.Client.Get(ctx, key, &s)
		}
	}
	if err != nil {
		return err
	}
	version := versionOf(&s)
	if version == k.version {
		return nil
	}
	changed, err := k.Ring.Use(s.Data[envkeys.SecretKey])
	if err != nil {
		return fmt.Errorf("key %q: %w", envkeys.SecretKey, err)
	}
	k.version = version
	if changed {
		primary, _ := k.Ring.Primary() // load has just set it
		k.Logger.Info("variables are sealed under this key", "secret", k.Secret, "keyID", primary)
	}
	return nil
}

// Version returns the version of the Secret that the keyring has; "" when there is none.
func (k *EnvKeys) Version() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.version
}

// NoneRemains writes into the Secret that no value is sealed under another key than the primary one, keyID. It returns the version that the
// Secret has then. It fails with a conflict when the Secret is not of the given version any more, because it may then have other keys.
func (k *EnvKeys) NoneRemains(ctx context.Context, version string, keyID uint32) (string, error) {
	var s corev1.Secret
	if err := k.Client.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: k.Secret}, &s); err != nil {
		return "", err
	}
	if versionOf(&s) != version {
		return "", apierrors.NewConflict(corev1.Resource("secrets"), k.Secret, errors.New("it has changed since its keys were read"))
	}
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, skeinv1.AnnotationEnvSealedUnder, fmt.Sprint(keyID))
	if err := k.Client.Update(ctx, &s); err != nil {
		return "", err
	}
	return versionOf(&s), nil
}

func versionOf(s *corev1.Secret) string { return string(s.UID) + "/" + s.ResourceVersion }

func (k *EnvKeys) create(ctx context.Context) error {
	used, err := k.InUse(ctx)
	if err != nil {
		return err
	}
	if used {
		return fmt.Errorf("the Secret is gone, but variables are sealed with its keys: restore it from a backup, or delete those variables and create a new Secret with kubectl skein env rotate")
	}
	if k.MakeNamespace {
		err := k.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: k.Namespace}})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	keyset, err := envkeys.Generate()
	if err != nil {
		return err
	}
	return k.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Secret, Labels: map[string]string{skeinv1.LabelManagedBy: skeinv1.ManagedByValue}},
		Data:       map[string][]byte{envkeys.SecretKey: keyset},
	})
}

// logNew logs an error, unless it is the one that was logged last.
func (k *EnvKeys) logNew(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != k.trouble {
		k.Logger.Error(err, "the keys that seal variables cannot be read", "namespace", k.Namespace, "secret", k.Secret)
	}
	k.trouble = text
}

// Start reads the Secret every EnvKeyReload until ctx ends.
func (k *EnvKeys) Start(ctx context.Context) error {
	ticker := k.Clock.NewTicker(EnvKeyReload)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			k.Load(ctx)
		}
	}
}

// NeedLeaderElection returns false: every replica unseals variables.
func (k *EnvKeys) NeedLeaderElection() bool { return false }
