package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// routed waits until the API server sends requests of the runtime API to the manager that is ready now, or the manager has ended.
// The API server looks every now and then whether a server answers for it. Where it has looked while no manager ran, what it
// found may be recorded only when one runs again, and has been reached already: its requests would be refused for a moment. A
// change of the APIService has what was found before refused, as a conflict, and leads to another look. What is recorded reaches
// those who forward requests a moment later, so a request is made too.
func (c *Cluster) routed(ctx context.Context, ended <-chan struct{}) error {
	forwarded, err := discovery.NewDiscoveryClientForConfig(c.Config)
	if err != nil {
		return err
	}
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
	for {
		refused := errors.New("no server is known for it")
		if available(s) {
			if refused = forwarded.RESTClient().Get().AbsPath("/apis", s.Spec.Group, s.Spec.Version).Do(ctx).Error(); refused == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the API server does not reach the manager: %+v: %w: %w", s.Status.Conditions, refused, ctx.Err())
		case <-ended:
			return errors.New("the manager ended before the API server reached it: see its log")
		case <-tick.C:
		}
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
			return err
		}
	}
}

func available(s *apiregistrationv1.APIService) bool {
	for _, cond := range s.Status.Conditions {
		if cond.Type == apiregistrationv1.Available {
			return cond.Status == apiregistrationv1.ConditionTrue
		}
	}
	return false
}
