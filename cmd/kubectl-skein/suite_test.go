package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/klog/v2"
	_ "sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/skein-dev/skein/internal/apiserver"
	"github.com/skein-dev/skein/internal/apiserver/apitest"
	"github.com/skein-dev/skein/internal/thread"
	"github.com/skein-dev/skein/test/browser"
)

// patience bounds what must happen, with room for busy machines. No spec measures it.
const patience = 2 * time.Minute

func TestPlugin(t *testing.T) {
	RegisterFailHandler(Fail)
	EnforceDefaultTimeoutsWhenUsingContexts() // otherwise a wait in vain lasts as long as its spec
	RunSpecs(t, "kubectl skein")
}

var (
	env        *apitest.Env
	kubeconfig string
	echoes     *echo
)

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(patience)
	klog.SetLogger(GinkgoLogr)
	Expect(os.Getenv("KUBEBUILDER_ASSETS")).NotTo(BeEmpty(), "this suite needs a control plane: run `make test-integration`")
	dir := GinkgoT().TempDir()
	var err error
	env, err = apitest.Start(ctx, dir, apitest.Parts{
		Engine: func(s *thread.Service) apiserver.Engine {
			echoes = &echo{svc: s, ended: make(chan error, 1)}
			return echoes
		},
		Children: noChildren{}, Effects: noEffects{}, Objects: noObjects{},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
	DeferCleanup(browser.Stop)
	kubeconfig = filepath.Join(dir, "admin")
	_, err = env.Kubeconfig("admin", kubeconfig, "system:masters")
	Expect(err).NotTo(HaveOccurred())
	stop := echoes.start()
	DeferCleanup(stop)
}, NodeTimeout(6*patience))
