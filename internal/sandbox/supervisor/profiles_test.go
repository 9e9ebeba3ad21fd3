//go:build linux && (amd64 || arm64)

package supervisor_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
	"github.com/skein-dev/skein/internal/sandbox/supervisor"
	"github.com/skein-dev/skein/internal/scratch"
)

var _ = Describe("Profiles of a supervisor", func() {
	It("are served at the address that it is given", func(ctx SpecContext) {
		certificates := sandboxtest.Start(GinkgoT(), nil).CertDir
		port, err := scratch.Port()
		Expect(err).NotTo(HaveOccurred())
		address := fmt.Sprintf("127.0.0.1:%d", port)
		program, err := os.Executable()
		Expect(err).NotTo(HaveOccurred())
		cmd := exec.Command(program, supervisor.ServeArg, "--listen=127.0.0.1:0", "--health-listen=", "--prefork=0", "--cert-dir="+certificates,
			"--pprof-listen="+address, "--announce", "--lifeline")
		lifeline, err := cmd.StdinPipe()
		Expect(err).NotTo(HaveOccurred())
		said, err := cmd.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		cmd.Stderr = GinkgoWriter
		Expect(cmd.Start()).To(Succeed())
		line, err := bufio.NewReader(said).ReadString('\n') // it listens
		Expect(err).NotTo(HaveOccurred(), line)

		Expect(read(ctx, "http://"+address+"/debug/pprof/goroutine?debug=1")).To(HavePrefix("goroutine profile: total"))
		Expect(read(ctx, "http://"+address+"/debug/pprof/profile?seconds=1")).To(HavePrefix("\x1f\x8b"), "what go tool pprof reads: protocol buffers, compressed")

		By("ending while a client reads a profile")
		read := make(chan error, 1)
		go func() {
			resp, err := http.Get("http://" + address + "/debug/pprof/trace?seconds=3600")
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			read <- err
		}()
		Expect(lifeline.Close()).To(Succeed())
		Expect(cmd.Wait()).To(Succeed())
		Eventually(ctx, read).Should(Receive(HaveOccurred()))
	}, NodeTimeout(time.Minute))

	It("are refused at other addresses than those of the loopback interface", func() {
		for _, address := range []string{":6061", "0.0.0.0:6061", "localhost:6061"} {
			o := supervisor.Defaults()
			o.PprofListen = address
			Expect(o.Validate()).To(MatchError(And(ContainSubstring("--pprof-listen "+address), ContainSubstring("loopback"))))
		}
	})
})

func read(ctx context.Context, url string) string {
	GinkgoHelper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	Expect(err).NotTo(HaveOccurred())
	resp, err := http.DefaultClient.Do(req)
	Expect(err).NotTo(HaveOccurred())
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	Expect(err).NotTo(HaveOccurred())
	Expect(resp.StatusCode).To(Equal(http.StatusOK), string(b))
	return string(b)
}
