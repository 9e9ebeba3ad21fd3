package app

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/skein-dev/skein/internal/store/sqlstore"
)

func parse(t *testing.T, args ...string) Options {
	t.Helper()
	o := Defaults()
	f := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	o.Flags(f)
	NewWithT(t).Expect(f.Parse(args)).To(Succeed())
	return o
}

func TestFlagsSayWhatToDo(t *testing.T) {
	for _, c := range []struct{ flag, says string }{
		{"--store=mysql", "--store=mysql: give sqlite or postgres"},
		{"--store=postgres", "--store=postgres: give the database's URL in --database-url-file or $SKEIN_DATABASE_URL"},
		{"--database-url-file=x", "set --store=postgres too"},
		{"--sandbox=docker", "give pods or process"},
		{"--data-dir=", "--data-dir: set a folder"},
		{"--sandbox-image=", "--sandbox-image: set the image"},
		{"--sandbox-image-pull-policy=Sometimes", "Always or IfNotPresent or Never"},
		{"--runtime-api-bind-address=8444", "give host:port, :port, or 0"},
		{"--metrics-bind-address=x", "--metrics-bind-address=x: give host:port"},
		{"--gateway-tls-key-file=x", "give both, or neither"},
		{"--gateway-tls-cert-file=x --gateway-tls-key-file=y", "give --gateway-bind-address too"},
		{"--namespaces=a,b", "one namespace or all of them"},
		{"--namespaces=A_B", "--namespaces=A_B"},
		{"--log-level=loud", "error or info or debug"},
		{"--workers=-1", "positive"},
		{"--namespace-workers=-1", "positive"},
		{"--thread-effects=-1", "--thread-effects=-1: give a positive number, or 0 for no limit"},
		{"--namespace-effects=-1", "--namespace-effects=-1: give a positive number, or 0 for no limit"},
		{"--thread-subagents=-1", "positive"},
		{"--file-quota-bytes=much", "amount of bytes such as 500Mi"},
		{"--file-quota-files=-1", "give 0 for no bound"},
		{"--tracing-endpoint=collector:4318", "--tracing-endpoint=collector:4318: give the URL of a collector, such as http://collector:4318"},
		{"--tracing-content", "--tracing-content: there are no traces"},
		{"--pprof-bind-address=:6060", "give an address of the loopback interface, such as 127.0.0.1:6060"},
		{"--pprof-bind-address=0.0.0.0:6060", "give an address of the loopback interface"},
		{"--pprof-bind-address=localhost:6060", "give an address of the loopback interface"},
		{"--sandbox-pprof-port=80", "give a port from 1024 to 65535"},
		{"--sandbox-pprof-port=8443", "that sandboxes do not use, such as 6061; they use 8443 and 8080"},
		{"--sandbox-pprof-port=6061 --sandbox=process", "it is for sandbox pods"},
	} {
		o := parse(t, strings.Fields(c.flag)...)
		NewWithT(t).Expect(o.validate()).To(MatchError(ContainSubstring(c.says)), c.flag)
	}
	o := parse(t, "--namespaces=shop", "--metrics-bind-address=0")
	NewWithT(t).Expect(o.validate()).To(Succeed())
}

func TestTheDatabasesURLIsSaidNowhere(t *testing.T) {
	g := NewWithT(t)
	for _, url := range []string{"postgres://skein:hunter2@127.0.0.1:1/skein?sslmode=disable", "postgres://skein:hunter2@[broken"} {
		t.Setenv("SKEIN_DATABASE_URL", url)
		o := parse(t, "--store=postgres")
		_, err := o.openStore(context.Background())
		g.Expect(err).To(HaveOccurred())
		g.Expect(err.Error()).NotTo(ContainSubstring("hunter2"))
	}
	t.Setenv("SKEIN_DATABASE_URL", "postgres://skein:hunter2@127.0.0.1:1/skein")
	g.Expect(run(t, "--store=postgres", "--database-url-file=/none")).To(MatchError(ContainSubstring("set twice")))
	t.Setenv("SKEIN_DATABASE_URL", "")
	empty := filepath.Join(t.TempDir(), "url")
	g.Expect(os.WriteFile(empty, []byte("\n"), 0o600)).To(Succeed())
	o := parse(t, "--store=postgres", "--database-url-file="+empty)
	_, err := o.openStore(context.Background())
	g.Expect(err).To(MatchError(ContainSubstring("is empty: it must hold the URL")))
}

func TestNoListenerForEndUsersUnlessAFlagAsksForOne(t *testing.T) {
	g := NewWithT(t)
	for _, args := range [][]string{nil, {"--gateway-bind-address=0"}, {"--gateway-bind-address="}} {
		o := parse(t, args...)
		o.Logger = logr.Discard()
		g.Expect(o.complete()).To(Succeed())
		g.Expect(o.servesGateways()).To(BeFalse(), "%v", args)
		g.Expect(o.addGateway(nil, nil, nil, nil, nil, nil, nil)).To(Succeed(), "it uses nothing, so it serves nothing")
	}
	o := parse(t, "--gateway-bind-address=127.0.0.1:8090")
	g.Expect(o.servesGateways()).To(BeTrue())
}

func TestAllMistakesAreNamedAtOnce(t *testing.T) {
	o := parse(t, "--store=x", "--sandbox=y")
	NewWithT(t).Expect(o.validate()).To(MatchError(And(ContainSubstring("--store"), ContainSubstring("--sandbox"))))
}

// run starts the manager and returns the error that it ends with.
func run(t *testing.T, args ...string) error {
	t.Helper()
	o := parse(t, append([]string{"--data-dir=" + t.TempDir(), "--sandbox=process", "--metrics-bind-address=0", "--health-probe-bind-address=0", "--runtime-api-bind-address=127.0.0.1:0"}, args...)...)
	o.Logger = logr.Discard()
	return Run(context.Background(), o)
}

func TestAMissingClusterIsSaidPlainly(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	g.Expect(run(t)).To(MatchError(And(ContainSubstring("no cluster to serve"), ContainSubstring("--kubeconfig"))))
	g.Expect(run(t, "--kubeconfig="+filepath.Join(t.TempDir(), "none"))).To(MatchError(ContainSubstring("none")))
}

// startWithoutCluster runs a manager whose API server is away until it says that it waits for it.
func startWithoutCluster(t *testing.T, o Options) error {
	t.Helper()
	const unreachable = "127.0.0.1:1"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o.Logger = funcr.New(func(_, line string) {
		if strings.Contains(line, "This replica waits") && strings.Contains(line, unreachable) {
			cancel()
		}
	}, funcr.Options{})
	o.Config = &rest.Config{Host: "http://" + unreachable}
	return Run(ctx, o)
}

func TestAnUnreachableClusterIsSaidPlainly(t *testing.T) {
	g := NewWithT(t)
	o := parse(t, "--data-dir="+t.TempDir(), "--metrics-bind-address=0", "--health-probe-bind-address=0")
	g.Expect(startWithoutCluster(t, o)).To(MatchError(ContainSubstring("reach the cluster at http://127.0.0.1:1")))
}

func TestALockedDataFolderIsSaidPlainly(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	st, err := sqlstore.OpenSQLite(context.Background(), sqlstore.SQLiteOptions{Dir: dir})
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(st.Close()).To(Succeed()) }()
	o := parse(t, "--data-dir="+dir)
	o.Logger, o.Config = logr.Discard(), &rest.Config{Host: "http://127.0.0.1:1"}
	g.Expect(Run(context.Background(), o)).To(MatchError(ContainSubstring(dir)))
}

func TestNothingIsLeftOpenAfterAFailedStart(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	o := parse(t, "--data-dir="+dir, "--sandbox=process", "--metrics-bind-address=0", "--health-probe-bind-address=0")
	g.Expect(startWithoutCluster(t, o)).NotTo(Succeed())
	st, err := sqlstore.OpenSQLite(context.Background(), sqlstore.SQLiteOptions{Dir: dir})
	g.Expect(err).NotTo(HaveOccurred(), "the folder's lock was given back")
	g.Expect(st.Close()).To(Succeed())
	_, err = os.Stat(filepath.Join(dir, "blobs"))
	g.Expect(err).NotTo(HaveOccurred())
}

func TestIdentitiesDiffer(t *testing.T) {
	g := NewWithT(t)
	a, err := identity()
	g.Expect(err).NotTo(HaveOccurred())
	b, err := identity()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(a).NotTo(Equal(b), "a process and its successor must not share leases")
}

func TestOwnNamespace(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("POD_NAMESPACE", "elsewhere")
	o := parse(t)
	o.Logger = logr.Discard()
	g.Expect(o.complete()).To(Succeed())
	g.Expect(o.Namespace).To(Equal("elsewhere"))
	url, err := o.blobURL()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(url).To(MatchRegexp(`^file:///.*/data/blobs$`))
}
