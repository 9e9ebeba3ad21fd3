package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const devcluster = "hack/devcluster/devcluster.sh"

// build builds the missing programs of the demo. Its progress goes to the terminal unchanged, and it has no time
// limit.
func (d *demo) build(ctx context.Context) error {
	args := []string{devcluster, "build", "--bin", "bin"}
	if os.Getenv("NODE") == "false" || d.model != nil && d.model.onLoopback() {
		args = append(args, "--control-plane")
	}
	cmd := d.command(ctx, args...)
	cmd.Stderr = os.Stderr // its standard output lists the folders of the programs
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%s: %w", quote(args), err)
	}
	return nil
}

// startCluster starts a cluster for the demo, with a node if this machine can have one.
func (d *demo) startCluster(ctx context.Context) error {
	// An earlier demo may have left its cluster for the user to look around.
	if err := d.down(); err != nil {
		return err
	}
	if err := os.MkdirAll(d.state, 0o755); err != nil {
		return err
	}
	d.say("1. A Kubernetes cluster")
	// The custom resources exist before the cluster's garbage collector starts. It takes up to 30 s to find later
	// ones, and until then nothing that they own is collected.
	args := []string{devcluster, "up", "--name", d.cluster, "--crds", "config/crd/bases"}
	node := os.Getenv("NODE")
	if d.model != nil && d.model.onLoopback() {
		fmt.Println("The model is on this machine's loopback, where pods cannot reach it: no node, the manager runs as a local process.")
		node = "false"
	}
	if node != "" {
		args = append(args, "--node="+node)
	}
	if d.model != nil && node != "false" {
		canNode, err := d.canNode(ctx)
		if err != nil {
			return err
		}
		if canNode {
			fmt.Println("The model is outside of the cluster: pods get a way out.")
			args = append(args, "--egress")
		}
	}
	if err := d.run(ctx, args...); err != nil {
		return err
	}
	out, err := d.output(ctx, devcluster, "env", "--name", d.cluster)
	if err != nil {
		return err
	}
	env := map[string]string{}
	for line := range strings.Lines(out) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			env[k] = v
		}
	}
	d.kubeconfig, d.kubernetes = env["KUBECONFIG"], env["KUBEBUILDER_ASSETS"]
	if d.kubeconfig == "" || d.kubernetes == "" {
		return fmt.Errorf("devcluster env printed neither KUBECONFIG nor KUBEBUILDER_ASSETS: %q", out)
	}
	d.setenv("KUBECONFIG", d.kubeconfig)
	d.setenv("PATH", strings.Join([]string{filepath.Join(d.root, "bin"), d.kubernetes, os.Getenv("PATH")}, ":"))
	nodes, err := d.output(ctx, "kubectl", "get", "nodes", "-o", "name")
	if err != nil {
		return err
	}
	d.node = strings.TrimSpace(nodes) != ""
	return nil
}

func (d *demo) canNode(ctx context.Context) (bool, error) {
	why, err := d.output(ctx, "hack/can-node.sh")
	return strings.TrimSpace(why) == "", err
}

// installSkein installs the operator as a Deployment, or runs it here when there is no node for pods.
func (d *demo) installSkein(ctx context.Context) error {
	if !d.node {
		d.say("2. Skein, as a process on this machine: there is no node for its pods")
		if err := d.run(ctx, "kubectl", "apply", "--server-side", "-k", "config/crd"); err != nil {
			return err
		}
		if err := d.run(ctx, "kubectl", "wait", "--for=condition=Established", "crd", "-l", "app.kubernetes.io/part-of=skein", "--timeout=60s"); err != nil {
			return err
		}
		if err := d.startManager(); err != nil {
			return err
		}
		return d.awaitRuntimeAPI(ctx)
	}
	d.say("2. Skein, as a Deployment in the cluster")
	load := []string{devcluster, "load", "--cluster", d.cluster, "--name"}
	for _, image := range [][]string{
		{"skein.dev/manager:dev", "--binary", "bin/manager"},
		{"skein.dev/sandbox:dev", "--binary", "bin/sandbox", "--file", "bin/sandbox-child:/sandbox-child"},
	} {
		if err := d.run(ctx, slices.Concat(load, image)...); err != nil {
			return err
		}
	}
	if err := d.run(ctx, "kubectl", "apply", "--server-side", "-k", "config/default"); err != nil {
		return err
	}
	if err := d.run(ctx, "kubectl", "rollout", "status", "-n", "skein-system", "deployment/skein-manager", "--timeout=120s"); err != nil {
		return err
	}
	return d.awaitRuntimeAPI(ctx)
}

// awaitRuntimeAPI waits until the API server can reach the manager. When the manager runs here, the APIService
// appears only when the manager has registered it.
func (d *demo) awaitRuntimeAPI(ctx context.Context) error {
	return poll(ctx, 90*time.Second, 200*time.Millisecond, "the runtime API answers through the API server", func() (bool, error) {
		_, err := d.output(ctx, "kubectl", "get", "--raw", "/apis/runtime.skein.dev/v1alpha1")
		return err == nil, err
	})
}

// down removes the local manager and the cluster, and reports it. It takes no context, because an interrupt must not
// stop it. It sets no time limit: devcluster has one for a cluster that does not stop, and may have to compile itself
// first.
func (d *demo) down() error {
	managerErr := d.stopManager()
	clusterErr := d.quietly(context.Background(), nil, os.Stdout, devcluster, "down", "--name", d.cluster)
	if err := errors.Join(managerErr, clusterErr); err != nil {
		return err
	}
	return os.RemoveAll(d.state)
}

// explain prints what helps to find out why the demo failed.
func (d *demo) explain() {
	if d.kubeconfig == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	commands := [][]string{
		{"kubectl", "get", "agents,threads,subagents,scheduledeffects,sandboxpools,pods", "-A", "-o", "wide"},
		{"kubectl", "get", "apiservice", "v1alpha1.runtime.skein.dev", "-o", "jsonpath={.status}{\"\\n\"}"},
		{"kubectl", "get", "events", "-A", "--sort-by=.lastTimestamp"},
	}
	if d.node {
		commands = append(commands, []string{"kubectl", "logs", "-n", "skein-system", "deployment/skein-manager", "--tail=40"})
	} else {
		commands = append(commands, []string{"tail", "-n", "40", d.managerLog()})
	}
	for _, c := range commands {
		// A command that fails prints its own error.
		_ = d.run(ctx, c...)
	}
}
