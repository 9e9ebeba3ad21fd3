package kube

import (
	"context"
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
	// EnvKeyReload is how often each replica looks at the Secret: a new primary key is used soon enough.
	EnvKeyReload = 15 * time.Second
	// envKeyRefresh is how far looks are apart that values under an unknown key ask for.
	envKeyRefresh = time.Second
	// envKeyPatience is how long one look may take: others wait for it.
	envKeyPatience = 10 * time.Second
)

// EnvKeys keeps a keyring up with its Secret in the manager's namespace.
type EnvKeys struct {
	Client    client.Client // reads from the API server
	Namespace string
	Secret    string
	Ring      *envkeys.Keyring
	// MakeNamespace makes the namespace when it is missing, for a manager that runs outside of the cluster.
	MakeNamespace bool
	// InUse tells whether anything is sealed already: then a missing Secret is lost, and no new one is made in
	// its place.
	InUse  func(ctx context.Context) (bool, error)
	Clock  clock.WithTicker
	Logger logr.Logger

	mu      sync.Mutex
	looked  time.Time // when the last look began
	version string
	trouble string // last told
}

// Load reads the keys, making the Secret when there is none and nothing is sealed yet. Without keys the manager
// works, but variables of threads do not: why is in the log.
func (k *EnvKeys) Load(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.look(ctx)
}

// Refresh is Load for whoever has met a key that the keyring does not have: another replica may have seen a new one first. Of
// those who ask at the same time one looks for all, and looks are a second apart.
func (k *EnvKeys) Refresh(ctx context.Context) {
	asked := k.Clock.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.looked.After(asked) {
		return // for another, meanwhile
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

// look is called with the lock held.
func (k *EnvKeys) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, envKeyPatience)
	defer cancel()
	k.looked = k.Clock.Now()
	k.tell(k.load(ctx))
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
	version := string(s.UID) + "/" + s.ResourceVersion
	if version == k.version {
		return nil
	}
	changed, err := k.Ring.Use(s.Data[envkeys.SecretKey])
	if err != nil {
		return fmt.Errorf("key %q: %w", envkeys.SecretKey, err)
	}
	k.version = version
	if changed {
		primary, _ := k.Ring.Primary() // it has just been given
		k.Logger.Info("variables are sealed under this key", "secret", k.Secret, "keyID", primary)
	}
	return nil
}

func (k *EnvKeys) create(ctx context.Context) error {
	used, err := k.InUse(ctx)
	if err != nil {
		return err
	}
	if used {
		return fmt.Errorf("it is gone, and variables are sealed under its keys: restore it from a backup, or delete those variables and create it anew with kubectl skein env rotate")
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

// tell logs a trouble once.
func (k *EnvKeys) tell(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != k.trouble {
		k.Logger.Error(err, "the keys that seal variables cannot be read", "namespace", k.Namespace, "secret", k.Secret)
	}
	k.trouble = text
}

// Start keeps the keys up with the Secret until ctx ends.
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

// NeedLeaderElection is false: every replica opens variables.
func (k *EnvKeys) NeedLeaderElection() bool { return false }
