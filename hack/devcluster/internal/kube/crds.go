package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clientset "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// installCRDs creates the custom resources of a folder and waits until they can be used. The controllers must not run
// yet: the garbage collector looks for new kinds when it starts, and then only every 30 s.
func (c *ControlPlane) installCRDs(ctx context.Context) error {
	definitions, err := readCRDs(c.cfg.CRDs)
	if err != nil {
		return err
	}
	rc, err := clientcmd.BuildConfigFromFlags("", c.dir.Kubeconfig())
	if err != nil {
		return err
	}
	rc.QPS, rc.Burst = -1, -1
	clients, err := clientset.NewForConfig(rc)
	if err != nil {
		return err
	}
	crds := clients.ApiextensionsV1().CustomResourceDefinitions()
	for i := range definitions {
		if _, err := crds.Create(ctx, &definitions[i], metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("custom resource %s: %w", definitions[i].Name, err)
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 60*time.Second, errors.New("custom resources: not established after 60 s"))
	defer cancel()
	for i := range definitions {
		for {
			d, err := crds.Get(ctx, definitions[i].Name, metav1.GetOptions{})
			if err == nil && established(d) {
				break
			}
			select {
			case <-ctx.Done():
				return errors.Join(context.Cause(ctx), err)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return nil
}

func established(d *apiextensions.CustomResourceDefinition) bool {
	for _, c := range d.Status.Conditions {
		if c.Type == apiextensions.Established {
			return c.Status == apiextensions.ConditionTrue
		}
	}
	return false
}

// readCRDs returns the custom resources of a folder, one per file.
func readCRDs(dir string) ([]apiextensions.CustomResourceDefinition, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no custom resources in %s: --crds is a folder of .yaml files", dir)
	}
	out := make([]apiextensions.CustomResourceDefinition, len(files))
	for i, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		if err := yaml.UnmarshalStrict(b, &out[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		if out[i].Kind != "CustomResourceDefinition" {
			return nil, fmt.Errorf("%s is a %q, not a CustomResourceDefinition", f, out[i].Kind)
		}
	}
	return out, nil
}
