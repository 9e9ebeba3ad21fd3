package conformance

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// kubeconfigFor returns a kubeconfig of the cluster's administrator that reaches the API server at another URL.
func kubeconfigFor(url string) string {
	GinkgoHelper()
	original := string(must(os.ReadFile(cluster.Kubeconfig)))
	Expect(original).To(ContainSubstring(cluster.Config.Host))
	path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(os.WriteFile(path, []byte(strings.ReplaceAll(original, cluster.Config.Host, url)), 0o600)).To(Succeed())
	return path
}

var _ = Describe("A replica that starts during an outage", Serial, outages, Label("K8S-05"), func() {
	It("waits for PostgreSQL and the API server, says so, and serves once they are back", func(ctx SpecContext) {
		ns := namespace(ctx)
		server, name, options := postgresFor(ctx, ns)
		database, databaseURL := link(server.URL(name))
		apiserver, apiserverURL := link(cluster.Config.Host)
		log := &lines{}
		o := options()
		o.Log, o.Env = log, []string{"SKEIN_DATABASE_URL=" + databaseURL}
		o.Args = append(o.Args, "--kubeconfig="+kubeconfigFor(apiserverURL))
		database.Leave()
		apiserver.Leave()
		m, err := cluster.NewManager(o)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(m.Stop)
		started := make(chan error, 1)
		go func() { started <- m.Start(ctx) }()

		Eventually(ctx, log.String).Should(ContainSubstring(`"what":"the database"`))
		database.Return()
		Eventually(ctx, log.String).Should(ContainSubstring(`"what":"the API server at ` + apiserverURL))
		Expect(started).NotTo(Receive(), "it has neither ended nor become ready")
		apiserver.Return()
		Eventually(ctx, started).Should(Receive(Succeed()))
		Expect(log.String()).To(ContainSubstring("Reached at last"))
	}, NodeTimeout(4*patience))

	It("ends at once when the server does not have its database", func(ctx SpecContext) {
		server, name, options := postgresFor(ctx, namespace(ctx))
		log := &lines{}
		o := options()
		o.Log, o.Env = log, []string{"SKEIN_DATABASE_URL=" + strings.Replace(server.URL(name), name, "missing", 1)}
		m, err := cluster.NewManager(o)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(m.Stop)
		starting, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		Expect(m.Start(starting)).To(MatchError(ContainSubstring("the manager ended before it was ready")))
		Expect(log.String()).To(ContainSubstring(`database "missing" does not exist`))
	}, NodeTimeout(3*patience))
})
