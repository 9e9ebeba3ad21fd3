package harness

import (
	"bufio"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cluster is a running dev cluster.
type Cluster struct {
	Name       string
	Kubeconfig string
	Config     *rest.Config
	Client     client.WithWatch
	kubectl    string
	log        io.Writer
}

// ClusterOptions say which cluster a test wants.
type ClusterOptions struct {
	// Name of the cluster. $SKEIN_CLUSTER_SUFFIX is put behind it, by default a number of this checkout, so that several can test
	// at once.
	Name string
	Node bool // with a real node: needs root on Linux
	// GVisor offers the RuntimeClass gvisor.
	GVisor bool
	// AuditLog makes the API server write its audit log, by which writes are counted.
	AuditLog bool
	Log      io.Writer
}

func devcluster(ctx context.Context, log io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(Root(), "hack", "devcluster", "devcluster.sh"), args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("devcluster %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// Up starts the cluster, or joins the one that runs under this name, and waits until it is usable.
func Up(ctx context.Context, o ClusterOptions) (*Cluster, error) {
	o.Name += clusterSuffix()
	args := []string{"up", "--name", o.Name, fmt.Sprintf("--node=%t", o.Node)}
	if o.GVisor {
		args = append(args, "--gvisor")
	}
	if o.AuditLog {
		args = append(args, "--audit-log")
	}
	if err := devcluster(ctx, o.Log, args...); err != nil {
		return nil, err
	}
	c := &Cluster{Name: o.Name, log: o.Log}
	env, err := clusterEnv(ctx, o.Name)
	if err != nil {
		return nil, err
	}
	c.Kubeconfig = env["KUBECONFIG"]
	c.kubectl = filepath.Join(env["KUBEBUILDER_ASSETS"], "kubectl")
	c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, err
	}
	c.Config.QPS, c.Config.Burst = -1, -1 // a test must not measure its own throttling
	c.Client, err = client.NewWithWatch(rest.CopyConfig(c.Config), client.Options{Scheme: Scheme()})
	return c, err
}

// clusterSuffix tells the clusters of this checkout from those of others.
func clusterSuffix() string {
	if suffix, ok := os.LookupEnv("SKEIN_CLUSTER_SUFFIX"); ok {
		return suffix
	}
	return fmt.Sprintf("-%08x", crc32.ChecksumIEEE([]byte(Root())))
}

func clusterEnv(ctx context.Context, name string) (map[string]string, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(Root(), "hack", "devcluster", "devcluster.sh"), "env", "--name", name).Output()
	if err != nil {
		return nil, fmt.Errorf("devcluster env: %w", err)
	}
	env := map[string]string{}
	for s := bufio.NewScanner(strings.NewReader(string(out))); s.Scan(); {
		if k, v, ok := strings.Cut(strings.TrimPrefix(s.Text(), "export "), "="); ok {
			env[k] = strings.Trim(v, `"'`)
		}
	}
	return env, nil
}

// Down stops the cluster and removes all of it.
func (c *Cluster) Down(ctx context.Context) error {
	return devcluster(ctx, c.log, "down", "--name", c.Name)
}

// LoadBinary makes a static binary an image of the cluster's node, with other ones beside it.
func (c *Cluster) LoadBinary(ctx context.Context, image, binary string, beside ...string) error {
	args := []string{"load", "--cluster", c.Name, "--name", image, "--binary", binary}
	for _, other := range beside {
		args = append(args, "--file", other+":/"+filepath.Base(other))
	}
	return devcluster(ctx, c.log, args...)
}

// LoadTree is LoadBinary with all the files of a folder at the image's root.
func (c *Cluster) LoadTree(ctx context.Context, image, binary, folder string) error {
	args := []string{"load", "--cluster", c.Name, "--name", image, "--binary", binary}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		inside, err := filepath.Rel(folder, path)
		args = append(args, "--file", path+":/"+inside)
		return err
	})
	if err != nil {
		return err
	}
	return devcluster(ctx, c.log, args...)
}

// Etcd is the folder with the files of the cluster's etcd.
func (c *Cluster) Etcd() string { return filepath.Join(filepath.Dir(c.Kubeconfig), "etcd") }

// KubectlPath is the kubectl of the cluster's version.
func (c *Cluster) KubectlPath() string { return c.kubectl }

// Kubectl runs kubectl and gives what it printed on both outputs.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.KubectlIn(ctx, "", args...)
}

// KubectlIn runs kubectl with a standard input.
func (c *Cluster) KubectlIn(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.kubectl, append([]string{"--kubeconfig", c.Kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// Path is a PATH on which kubectl and its plugin skein come first.
func (c *Cluster) Path() string {
	return strings.Join([]string{filepath.Dir(c.kubectl), filepath.Dir(Bin("kubectl-skein")), os.Getenv("PATH")}, string(os.PathListSeparator))
}

// Plugin runs kubectl-skein and gives what it printed on both outputs.
func (c *Cluster) Plugin(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, Bin("kubectl-skein"), append([]string{"--kubeconfig", c.Kubeconfig}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl skein %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}
