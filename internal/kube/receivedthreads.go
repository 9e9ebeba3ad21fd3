package kube

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/definitions"
)

// CreateReceivedThread creates the Thread of a delivery and returns its name. The name follows from the receiver and the id
// of the delivery, so that a repeat finds the object that exists.
func (k *Threads) CreateReceivedThread(ctx context.Context, r *definitions.Receiver, delivery string) (name string, err error) {
	sum := sha256.Sum256([]byte(r.UID + "\x00" + delivery))
	digest := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:digestBytes]))
	prefix := strings.ReplaceAll(r.Name, ".", "-")
	if most := validation.LabelValueMaxLength - len(digest) - 1; len(prefix) > most {
		prefix = strings.TrimRight(prefix[:most], "-")
	}
	t := &skeinv1.Thread{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: prefix + "-" + digest, Labels: map[string]string{skeinv1.LabelReceiver: r.Name}},
		Spec:       skeinv1.ThreadSpec{AgentRef: skeinv1.LocalRef{Name: r.Agent}},
	}
	var have skeinv1.Thread
	found, err := MakeOnce(ctx, k.client, k.live, t, &have)
	if err == nil || found && have.Labels[skeinv1.LabelReceiver] == r.Name {
		return t.Name, nil
	}
	return "", notMade(found, err)
}
