package cli

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func env(_ context.Context, args []string) (int, error) {
	var p place
	fl := flag.NewFlagSet("env", flag.ContinueOnError)
	p.register(fl)
	assets := fl.Bool("assets", false, "print only the folder for KUBEBUILDER_ASSETS")
	if err := parse(fl, args); err != nil {
		return 1, err
	}
	d, err := p.resolve()
	if err != nil {
		return 1, err
	}
	dir, err := assetsDir()
	if err != nil {
		return 1, err
	}
	if *assets {
		fmt.Println(dir)
		return 0, nil
	}
	fmt.Println("KUBECONFIG=" + d.Kubeconfig())
	fmt.Println("KUBEBUILDER_ASSETS=" + dir)
	return 0, nil
}

// assetsDir returns the folder beside this binary with the names that envtest looks for.
func assetsDir() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(filepath.Dir(self), "assets")
	if _, err := os.Stat(filepath.Join(dir, "kube-apiserver")); err != nil {
		return "", fmt.Errorf("no assets for envtest beside %s: run hack/devcluster/devcluster.sh env: %w", self, err)
	}
	return dir, nil
}
