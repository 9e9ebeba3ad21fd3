package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// routed waits until the API server sends requests of the runtime API to the manager that is ready now. The API server
// looks every now and then whether somebody serves it. Where it has looked while no manager ran, what it found may be
// recorded only when one runs again, and has been reached already: its requests would be refused for a moment. A change
// of the APIService has what was found before refused, as a conflict, and leads to another look.
func (c *Cluster) routed(ctx context.Context) error {
	s := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1alpha1.runtime.skein.dev"}}
	mark, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{"test.skein.dev/manager-ready": time.Now().Format(time.RFC3339Nano)}}})
	if err != nil {
		return err
	}
	if err := c.Client.Patch(ctx, s, client.RawPatch(types.MergePatchType, mark)); err != nil {
		return fmt.Errorf("have the API server look for the runtime API again: %w", err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !available(s) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the API server does not reach the manager: %+v: %w", s.Status.Conditions, ctx.Err())
		case <-tick.C:
		}
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
			return err
		}
	}
	return nil
}

func available(s *apiregistrationv1.APIService) bool {
	for _, cond := range s.Status.Conditions {
		if cond.Type == apiregistrationv1.Available {
			return cond.Status == apiregistrationv1.ConditionTrue
		}
	}
	return false
}
