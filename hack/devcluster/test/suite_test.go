// Package test runs devcluster as its users do: through devcluster.sh, with its own cluster name. The parts with a
// node need root on Linux, and report loudly when they are skipped.
package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/hack/devcluster/internal/node"
)

func TestDevcluster(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "devcluster")
}

// patience bounds what happens by itself, with room for busy machines.
const patience = 3 * time.Minute

// script is the command that users run.
var script string

// appBinary is the static test program for pods.
var appBinary string

var _ = BeforeSuite(func() {
	abs, err := filepath.Abs("../devcluster.sh")
	Expect(err).NotTo(HaveOccurred())
	script = abs
	appBinary = filepath.Join(GinkgoT().TempDir(), "app")
	build := exec.Command("go", "build", "-o", appBinary, "./app")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	// The first build takes minutes, which must not count as start time of a cluster.
	cmd := exec.Command(script, "build", "--gvisor")
	cmd.Stderr = GinkgoWriter
	Expect(cmd.Run()).To(Succeed())
})

// cluster is a cluster of a test.
type cluster struct{ name, dir string }

// newCluster returns a cluster named after the test process, and makes sure that nothing of it stays.
func newCluster(suffix string) cluster {
	name := fmt.Sprintf("t%d-%s", os.Getpid(), suffix)
	c := cluster{name: name, dir: filepath.Join(os.TempDir(), "dct-"+name)}
	DeferCleanup(func() { c.must("down", c.flags()...) })
	return c
}

func (c cluster) flags() []string { return []string{"--dir=" + c.dir, "--name=" + c.name} }

// result is the result of a command.
type result struct {
	out  string
	code int
}

// call runs a command of devcluster.sh.
func call(name string, args ...string) result {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, script, append([]string{name}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Minute
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		Fail(fmt.Sprintf("%s: %v\n%s", name, err, out.String()))
	}
	fmt.Fprintf(GinkgoWriter, "$ devcluster %s %s\n%s", name, strings.Join(args, " "), out.String())
	return result{out.String(), cmd.ProcessState.ExitCode()}
}

// must runs a command that must succeed, and returns its output.
func (c cluster) must(name string, args ...string) string {
	GinkgoHelper()
	r := call(name, args...)
	Expect(r.code).To(BeZero(), r.out)
	return r.out
}

// ready waits until status reports each part as ready. A busy part may not answer the first request in time.
func (c cluster) ready(parts ...string) {
	GinkgoHelper()
	for _, part := range parts {
		Eventually(func() string { return call("status", c.flags()...).out }, patience).Should(MatchRegexp(`(?m)^` + part + `\s+ready`))
	}
}

// kubectl runs kubectl against the cluster.
func (c cluster) kubectl(args ...string) result {
	GinkgoHelper()
	return call("kubectl", append([]string{"--kubeconfig=" + filepath.Join(c.dir, "kubeconfig")}, args...)...)
}

// get runs kubectl, which must succeed, and returns its output without surrounding white space.
func (c cluster) get(args ...string) string {
	GinkgoHelper()
	r := c.kubectl(args...)
	Expect(r.code).To(BeZero(), r.out)
	return strings.TrimSpace(r.out)
}

// apply creates objects from YAML.
func (c cluster) apply(yaml string) {
	GinkgoHelper()
	f := filepath.Join(GinkgoT().TempDir(), "objects.yaml")
	Expect(os.WriteFile(f, []byte(yaml), 0o600)).To(Succeed())
	c.get("apply", "-f", f)
}

// needNode skips, with a loud notice, what cannot run here.
func needNode() {
	GinkgoHelper()
	if err := node.Possible(); err != nil {
		Skip("NOT TESTED on this machine: " + err.Error())
	}
}
