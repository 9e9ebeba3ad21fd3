package kube

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/definitions"
)

// +kubebuilder:rbac:groups=skein.dev,resources=threads,verbs=create

// digestBytes is the number of bytes of a digest in names. It is so large that two ids with the same digest cannot be found.
const digestBytes = 20

// ErrOtherThread reports that the name of a Thread of a ThreadGateway or a WebhookReceiver belongs to an object that another one made.
var ErrOtherThread = errors.New("a Thread of that name exists and was not made by this gateway or receiver")

// UnmadeError reports that the cluster refuses the Thread of a ThreadGateway or a WebhookReceiver: a quota, a policy or a webhook does.
type UnmadeError struct{ cause error }

// Error implements error.
func (e *UnmadeError) Error() string { return "the cluster refuses the Thread: " + e.cause.Error() }

// notMade returns why a Thread of a ThreadGateway or a WebhookReceiver was not created. found says that another one has its name.
func notMade(found bool, err error) error {
	switch {
	case IsRefused(err) || apierrors.IsForbidden(err):
		return &UnmadeError{cause: err}
	case found:
		return ErrOtherThread
	}
	return err
}

// GatewayThread returns the name of the Thread for an end user's id. It follows from the gateway and the id alone, so that
// every replica finds the same one, and the id does not follow from it.
func GatewayThread(g *definitions.Gateway, id string) string {
	h := sha256.New()
	for _, s := range []string{g.Namespace, g.Name, id} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	digest := strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)[:digestBytes]))
	prefix := strings.ReplaceAll(g.Name, ".", "-")
	if most := validation.LabelValueMaxLength - len(digest) - 1; len(prefix) > most {
		prefix = strings.TrimRight(prefix[:most], "-")
	}
	return prefix + "-" + digest
}

// MadeByGateway reports whether a gateway made a Thread.
func MadeByGateway(t *skeinv1.Thread, g *definitions.Gateway) bool {
	return t.Labels[skeinv1.LabelGateway] == g.Name
}

// CreateGatewayThread creates the Thread for an end user's id and returns it. A repeat finds the object that exists. user is the
// user that the conversation is with. If it is "", the name of the Thread stands for the user: threads without a user share one
// memory, which strangers must not.
func (k *Threads) CreateGatewayThread(ctx context.Context, g *definitions.Gateway, id, user string) (*skeinv1.Thread, error) {
	name := GatewayThread(g, id)
	t := &skeinv1.Thread{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: name, Labels: map[string]string{skeinv1.LabelGateway: g.Name}},
		Spec:       skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: g.Agent}, UserID: cmp.Or(user, name)},
	}
	var have skeinv1.Thread
	found, err := MakeOnce(ctx, k.client, k.live, t, &have)
	switch {
	case err == nil:
		return t, nil
	case found && MadeByGateway(&have, g):
		return &have, nil
	}
	return nil, notMade(found, err)
}
