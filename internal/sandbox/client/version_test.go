//go:build linux && (amd64 || arm64)

package client_test

import (
	"crypto/tls"
	"net"
	"net/http"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/client"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
)

// peer is a sandbox that answers as handler does, with the certificate of a supervisor.
func peer(handler http.Handler) *client.Client {
	GinkgoHelper()
	s := sandboxtest.Start(GinkgoT(), nil) // for its certificates
	pair, err := tls.LoadX509KeyPair(filepath.Join(s.CertDir, "tls.crt"), filepath.Join(s.CertDir, "tls.key"))
	Expect(err).NotTo(HaveOccurred())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	server := &http.Server{Handler: handler, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.ServeTLS(l, "", "") }()
	DeferCleanup(server.Close)
	c, err := client.Dial(client.Options{Address: l.Addr().String(), ServerName: sandboxtest.ServerName, CA: s.CA.Cert, Client: s.Client, ThreadID: "thread"})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(c.Close)
	return c
}

var _ = Describe("The version of the protocol", Label("K8S-10"), func() {
	DescribeTable("is the newest that both sides know", func(ctx SpecContext, answers, spoken string) {
		mux := http.NewServeMux()
		if answers != "" {
			mux.HandleFunc("GET "+protocol.VersionPath, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answers)) })
		}
		asked := make(chan string, 1)
		mux.HandleFunc("POST /v1/isolate", func(w http.ResponseWriter, r *http.Request) {
			asked <- r.Header.Get(protocol.VersionHeader)
			http.Error(w, "not today", http.StatusServiceUnavailable)
		})
		c := peer(mux)
		Expect(c.Connect(ctx)).To(Succeed())
		_ = c.RunCode(ctx, sandbox.CodeRequest{Source: "1"}).Wait(ctx)
		Eventually(asked).Should(Receive(Equal(spoken)))
	},
		Entry("with a sandbox from before versions", "", "1"),
		Entry("with one of the release before", "1 1\n", "1"),
		Entry("with one of this release", protocol.Versions(), "2"),
		Entry("with one of the next release", "2 3\n", "2"),
	)

	DescribeTable("must be one that both sides know", func(ctx SpecContext, answer, why string) {
		c := peer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) }))
		err := c.Connect(ctx)
		Expect(err).To(MatchError(sandbox.ErrIncompatible))
		Expect(err).To(MatchError(And(ContainSubstring(why), ContainSubstring("delete it, and the pool makes another one"))))
	},
		Entry("a sandbox that is two releases newer", "3 4\n", "it knows the versions 3 to 4 of the sandbox protocol, and this manager 1 to 2"),
		Entry("one that answers something else", "<html>", `it says that it knows the versions "<html>"`),
		Entry("one whose versions are in the wrong order", "3 1", "it says that it knows the versions"),
	)

	It("is refused by a sandbox that does not know it, before any code runs", func() {
		for _, good := range []string{"", "1", "2"} {
			Expect(protocol.Speaks(good)).To(Succeed())
		}
		for _, bad := range []string{"0", "3", "two"} {
			Expect(protocol.Speaks(bad)).To(MatchError(ContainSubstring("delete the pod, and the pool makes another one")))
		}
	})

	It("lets messages have more fields at their end than a reader knows", func() {
		m, err := protocol.ParseInvoke(append((&protocol.Invoke{ID: 7, Module: "m"}).Encode(), "of the next release"...))
		Expect(err).NotTo(HaveOccurred())
		Expect(m).To(And(HaveField("ID", uint64(7)), HaveField("Module", "m")))
	})
})
