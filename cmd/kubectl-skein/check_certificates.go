package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// certificateSecrets are the Secrets in the manager's namespace that hold certificates which it makes and renews.
var certificateSecrets = []string{"skein-runtime-api-tls", "skein-sandbox-ca"}

// annotationRenewAt is the time at which the manager renews the certificate of a pool. It is beside the key, which this check does not read.
const annotationRenewAt = "skein.dev/renew-at"

// renewalDelay is how late a renewal may be before it counts as missed.
const renewalDelay = time.Hour

// checkCertificates looks for certificates that the manager should have renewed.
func checkCertificates(ctx context.Context, c *checker, say say) error {
	const remedy = "The manager renews it. If it does not, see its log."
	fine := 0
	for _, name := range certificateSecrets {
		var s corev1.Secret
		err := c.client.Get(ctx, client.ObjectKey{Namespace: c.system, Name: name}, &s)
		if apierrors.IsNotFound(err) {
			continue // the installation has certificates of its own, or the manager has made none yet
		}
		if err != nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(s.Data)) {
			end := expiry(s.Data[key])
			switch rest := end.Sub(c.now); {
			case !strings.HasSuffix(key, ".crt") || end.IsZero():
			case rest <= 0:
				say(levelError, remedy, "%s in the Secret %s/%s ended at %s", key, c.system, name, end.Format(time.RFC3339))
			case rest < certificateRest:
				say(levelWarning, remedy, "%s in the Secret %s/%s ends at %s", key, c.system, name, end.Format(time.RFC3339))
			default:
				fine++
			}
		}
	}
	of, err := c.checkPoolCertificates(ctx, say)
	if err != nil {
		return err
	}
	if fine += of; fine > 0 {
		say(levelOK, "", "%d certificates of the manager and of sandbox pools are fresh", fine)
	}
	return nil
}

// checkPoolCertificates looks at what the manager wrote beside the certificates of pools, and returns how many are fresh. It reads no key.
func (c *checker) checkPoolCertificates(ctx context.Context, say say) (fine int, err error) {
	list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "SecretList"}}
	if err := c.client.List(ctx, &list, client.HasLabels{skeinv1.LabelPool}); err != nil {
		return 0, err
	}
	for i := range list.Items {
		s := &list.Items[i]
		at, err := time.Parse(time.RFC3339, s.Annotations[annotationRenewAt])
		if err != nil {
			continue // made by an earlier release
		}
		if late := c.now.Sub(at); late > renewalDelay {
			say(levelWarning, fmt.Sprintf("kubectl -n %s describe sandboxpool %s; see the log of the manager.", s.Namespace, s.Labels[skeinv1.LabelPool]),
				"the certificate of the sandbox pool %s/%s was to be renewed at %s", s.Namespace, s.Labels[skeinv1.LabelPool], s.Annotations[annotationRenewAt])
			continue
		}
		fine++
	}
	return fine, nil
}
