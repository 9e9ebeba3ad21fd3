package sandboxpool

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skein-dev/skein/internal/kube/sandboxpod"
)

// How many pods of a pool start at the same time (docs/adr/0016-warm-buffer.md). A pod that a thread waits for shares the processors of its
// node with all others that start there.
const (
	startsPerProcessor = 5 // of the nodes that the pool selects
	startsAtLeast      = 10
	// startsFor is how long a pod counts as starting. One that takes longer waits for something else than a processor, such as its image.
	startsFor = 30 * time.Second
)

// room returns how many pods may begin to start, and schedules a look at the pool for when there may be room for more.
func (r *Reconciler) room(ctx context.Context, s *scope) (int, error) {
	var nodes corev1.NodeList
	err := r.Client.List(ctx, &nodes, client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(s.object.Spec.NodeSelector)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return 0, fmt.Errorf("list the nodes of the pool: %w", err)
	}
	processors := int64(0)
	for i := range nodes.Items {
		if n := &nodes.Items[i]; !n.Spec.Unschedulable {
			processors += n.Status.Allocatable.Cpu().Value()
		}
	}
	room := max(startsAtLeast, startsPerProcessor*int(processors))
	for _, p := range slices.Concat(s.pods.starting, s.pods.claimed) {
		// What a pod in trouble waits for takes no processor. One that is not ready any more has started long ago.
		if took := s.at.Sub(p.CreationTimestamp.Time); !sandboxpod.IsReady(p) && sandboxpod.TroubleText(p) == "" && took < startsFor {
			room--
			s.look(startsFor - took)
		}
	}
	return max(room, 0), nil
}
