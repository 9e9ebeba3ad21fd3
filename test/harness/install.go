package harness

import (
	"context"
	"path/filepath"

	"k8s.io/apimachinery/pkg/api/resource"
)

// SystemNamespace is where config/default installs Skein.
const SystemNamespace = "skein-system"

// Install puts Skein into a cluster with a node as the README says: images, config/default, ready.
func (c *Cluster) Install(ctx context.Context) error {
	if err := c.LoadBinary(ctx, "skein.dev/manager:dev", Bin("manager")); err != nil {
		return err
	}
	if err := c.LoadBinary(ctx, "skein.dev/sandbox:dev", Bin("sandbox"), Bin("sandbox-child")); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"apply", "--server-side", "-k", filepath.Join(Root(), "config", "default")},
		{"-n", SystemNamespace, "rollout", "status", "deploy/skein-manager", "--timeout=5m"},
		{"wait", "--for=condition=Available", "apiservice/v1alpha1.runtime.skein.dev", "--timeout=5m"},
	} {
		if _, err := c.Kubectl(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// Quantity parses a constant.
func Quantity(s string) resource.Quantity { return resource.MustParse(s) }
