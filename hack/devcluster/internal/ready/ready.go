// Package ready waits for objects of the cluster.
package ready

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Exists calls get until it returns no error, at most until ctx ends. what is the name in the error.
func Exists(ctx context.Context, what string, get func(context.Context) error) error {
	t := time.NewTicker(50 * time.Millisecond)
	defer t.Stop()
	for {
		err := get(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w (last: %w)", what, context.Cause(ctx), err)
		case <-t.C:
		}
	}
}

// Node waits until the node's Ready condition is true.
func Node(ctx context.Context, client kubernetes.Interface, name string) error {
	return Exists(ctx, "node "+name+" to become ready", func(ctx context.Context) error {
		n, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return IsNodeReady(n)
	})
}

// IsNodeReady returns nil when the node's Ready condition is true, else an error with its content.
func IsNodeReady(n *corev1.Node) error {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			if c.Status == corev1.ConditionTrue {
				return nil
			}
			return fmt.Errorf("%s: %s", c.Reason, c.Message)
		}
	}
	return errors.New("the kubelet has not reported yet")
}
