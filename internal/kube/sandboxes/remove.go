package sandboxes

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// remove deletes a pod at once. When that fails, it is tried again after the pod has been idle once more.
func (s *Pods) remove(ctx context.Context, pod types.NamespacedName, uid types.UID) {
	s.tracker.setGone(uid, true)
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err := s.Client.Delete(ctx, o, client.Preconditions{UID: &uid}, client.GracePeriodSeconds(0))
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // a conflict means that another pod has the name now
		// Clear the mark if the cache has seen the deletion already, perhaps before the mark was set.
		var p corev1.Pod
		if err := s.Client.Get(ctx, pod, &p, quick, client.UnsafeDisableDeepCopy); apierrors.IsNotFound(err) || err == nil && p.UID != uid {
			s.tracker.setGone(uid, false)
		}
		return
	}
	s.tracker.setGone(uid, false)
	if !errors.Is(err, context.Canceled) {
		s.Logger.Error(err, "cannot delete a sandbox pod", "namespace", pod.Namespace, "pod", pod.Name)
	}
	go s.keep(context.WithoutCancel(ctx), pod)
}
