package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// onSmallDisk is a command that gives its program, and it alone, a small disk at dir. Root mounts it in a mount
// namespace of its own; others in a user namespace, where they are root.
func onSmallDisk(dir, size string) []string {
	words := []string{"unshare", "--mount"}
	if os.Geteuid() != 0 {
		words = append(words, "--user", "--map-root-user")
	}
	return append(words, "sh", "-c", `mount -t tmpfs -o size=`+size+` tmpfs "$0" && exec "$@"`, dir)
}

// fill writes a file until the disk is full, and gives its path.
func fill(dir string) string {
	GinkgoHelper()
	name := filepath.Join(dir, "filler")
	f, err := os.Create(name)
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(f.Close()).To(Succeed()) }()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else {
			Expect(err).NotTo(HaveOccurred())
		}
	}
	return name
}

// instead runs another manager in place of the suite's until the spec ends.
func instead(ctx context.Context, o harness.ManagerOptions) *harness.Manager {
	GinkgoHelper()
	o.Log = logFile
	other, err := cluster.NewManager(o)
	Expect(err).NotTo(HaveOccurred())
	manager.Stop()
	DeferCleanup(func(ctx SpecContext) {
		other.Stop()
		Expect(manager.Start(ctx)).To(Succeed())
		served(ctx)
	}, NodeTimeout(2*patience))
	Expect(other.Start(ctx)).To(Succeed())
	served(ctx)
	return other
}

// served waits until the aggregation layer reaches the manager.
func served(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		_, err := cluster.Kubectl(ctx, "get", "--raw", "/apis/runtime.skein.dev/v1alpha1")
		return err
	}).Should(Succeed(), "the aggregation layer reaches the manager")
}

var _ = Describe("A disk that is full", Serial, outages, func() {
	It("is said clearly, costs nothing that was acknowledged, and is over without a restart", Label("THR-18", "MSG-04", "FIL-01"), func(ctx SpecContext) {
		ns := namespace(ctx)
		dir := filepath.Join(GinkgoT().TempDir(), "data")
		Expect(os.Mkdir(dir, 0o700)).To(Succeed())
		small := instead(ctx, harness.ManagerOptions{Dir: dir, Args: []string{"--namespaces=" + ns}, Within: onSmallDisk(dir, "48m")})
		pid := small.PID()
		disk := filepath.Join("/proc", fmt.Sprint(pid), "root", dir)
		t := converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Answer("one"), harness.Answer("two")})
		Expect(last(say(ctx, t, 1, "hello"))).To(Equal("one"))
		api, err := client.New(cluster.Config)
		Expect(err).NotTo(HaveOccurred())
		thread := api.Thread(ns, t.Name)

		By("filling the disk while many write")
		filler := fill(disk)
		var mu sync.Mutex
		var kept []string
		refused := 0
		content := strings.Repeat("x", 200_000)
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				defer GinkgoRecover()
				for n := range 10 {
					id := fmt.Sprintf("m-%d-%d", w, n)
					_, err := thread.Inject(ctx, runtimev1.NewMessage{ID: id, Role: runtimev1.RoleUser, Content: content})
					mu.Lock()
					if err == nil {
						kept = append(kept, id)
					} else {
						refused++
						Expect(apierrors.IsServiceUnavailable(err)).To(BeTrue(), "%v", err)
						Expect(err).To(MatchError(ContainSubstring("cannot write: try again")))
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		Expect(refused).To(BeNumerically(">", 0))
		_, err = thread.WriteFile(ctx, "/large", io.LimitReader(zeros{}, 8<<20), client.WriteFileOptions{})
		Expect(apierrors.IsServiceUnavailable(err)).To(BeTrue(), "%v", err)

		By("reading all the while")
		page, err := thread.Messages(ctx, client.MessageOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Total).To(Equal(int64(2 + len(kept))))
		Eventually(ctx, small.Ready).Should(BeFalse(), "it says that it cannot do its work")

		By("making room")
		Expect(os.Remove(filler)).To(Succeed())
		Eventually(ctx, small.Ready).Should(BeTrue())
		Expect(last(say(ctx, t, 2, "are you well?"))).To(Equal("two"))
		_, err = thread.WriteFile(ctx, "/large", io.LimitReader(zeros{}, 8<<20), client.WriteFileOptions{})
		Expect(err).NotTo(HaveOccurred())
		var have []string
		for offset := 0; ; offset += len(page.Messages) {
			page, err = thread.Messages(ctx, client.MessageOptions{Page: client.Page{Offset: offset}, Order: "asc"})
			Expect(err).NotTo(HaveOccurred())
			for _, m := range page.Messages {
				if strings.HasPrefix(m.ID, "m-") {
					have = append(have, m.ID)
				}
			}
			if !page.HasMore {
				break
			}
		}
		slices.Sort(have)
		slices.Sort(kept)
		Expect(have).To(Equal(kept))
		Expect(small.PID()).To(Equal(pid), "it was never restarted")
	}, NodeTimeout(5*patience))
})

// zeros is an endless file.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
