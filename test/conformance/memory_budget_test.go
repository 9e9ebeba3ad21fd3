package conformance

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// podLimit is the memory limit of the manager's pod that the spec plays, and calmRounds is how often another namespace is served before
// the attack and, at least, meanwhile.
const (
	podLimit   = 512 << 20
	calmRounds = 15
)

// hoards are programs whose values take a hundred times the memory of their bytes, or as much as they may.
var hoards = []string{
	"export default () => { for (let i = 0; i < 5; i++) report(Array(600000).fill({a: null})) }",
	"export default () => { for (let i = 0; i < 5; i++) report(Array(120000).fill({a: null})) }",
	"export default () => Array(180000).fill({a: null})",
	"export default () => 'x'.repeat(30 << 20)",
	"export default () => { for (let i = 0; i < 900; i++) report(Array(1000).fill({a: {b: null}})) }",
}

// watermark samples the memory of a process that the kernel cannot take back: what is mapped from files does not end a pod at its
// limit.
type watermark struct{ most, now int }

func (w *watermark) sample(ctx context.Context, pid int) {
	anonymous := regexp.MustCompile(`RssAnon:\s+(\d+) kB`)
	for ctx.Err() == nil {
		b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
		if err != nil {
			return // it has ended, which the spec notices
		}
		if m := anonymous.FindSubmatch(b); m != nil {
			n, _ := strconv.Atoi(string(m[1]))
			w.now = n << 10
			w.most = max(w.most, w.now)
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// median returns the time in the middle.
func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}

var _ = Describe("A manager with little memory", Serial, outages, Label("K8S-12", "COD-06", "COD-07"), func() {
	It("stays up and serves other namespaces while forty hostile programs and clients take what they can", func(ctx SpecContext) {
		dir := filepath.Join(GinkgoT().TempDir(), "data")
		small := instead(ctx, harness.ManagerOptions{Dir: dir, Args: engineArgs(), Env: []string{fmt.Sprintf("GOMEMLIMIT=%d", podLimit/100*85)}})
		pid := small.PID()
		hostile, calm := namespace(ctx), namespace(ctx)
		peaceful := converse(ctx, calm, nil, []skeinv1.ScriptStep{harness.Echo()})
		large := converse(ctx, hostile, nil, []skeinv1.ScriptStep{harness.Echo()})
		var runners []*harness.Thread
		for i := range 4 {
			name := fmt.Sprintf("runner-%d", i)
			create(ctx, harness.NewThread(hostile, name, "agent"))
			runners = append(runners, ready(ctx, cluster.Thread(hostile, name)))
		}
		for i := range 80 {
			_, err := large.Inject(ctx, runtimev1.NewMessage{Role: "user", Content: strings.Repeat(string(rune('a'+i%26)), 250<<10)})
			Expect(err).NotTo(HaveOccurred())
		}

		// round serves the other namespace once. It returns how long its code took, and how long all of it.
		round := func(i int, message bool) (code, all time.Duration) {
			GinkgoHelper()
			began := time.Now()
			r, err := peaceful.Code(ctx, runtimev1.CodeRequest{Source: "export default () => Array(1000).fill({a: null}).length"})
			code = time.Since(began)
			Expect(err).NotTo(HaveOccurred(), "round %d: %+v", i, small.Running())
			Expect(r.Error).To(BeNil())
			Expect(r.Result).To(MatchJSON("1000"))
			if message {
				Expect(last(say(ctx, peaceful, i+1, fmt.Sprint("round ", i)))).To(Equal(fmt.Sprint("echo: round ", i)))
			}
			return code, time.Since(began)
		}
		// The report has the times of before the attack too. Nothing is expected of them: they also depend on what else the machine does.
		var quiet, hurried []time.Duration
		for i := range calmRounds {
			code, _ := round(i, true)
			quiet = append(quiet, code)
		}

		attack, over := context.WithCancel(ctx)
		defer over()
		var group sync.WaitGroup
		var memory watermark
		group.Go(func() { memory.sample(attack, pid) })
		var refused, succeeded atomic.Int64
		again := func(n int, do func(i int) error) {
			for i := range n {
				group.Go(func() {
					for attack.Err() == nil {
						switch err := do(i); {
						case err == nil:
							succeeded.Add(1)
						case apierrors.IsTooManyRequests(err):
							refused.Add(1)
						}
					}
				})
			}
		}
		said := sync.Map{}
		again(16, func(i int) error { // programs
			r, err := runners[i%len(runners)].Code(attack, runtimev1.CodeRequest{Source: hoards[i%len(hoards)], MemoryLimitBytes: 256 << 20, WallTime: &metav1.Duration{Duration: 20 * time.Second}})
			if r.Error != nil {
				said.Store(r.Error.Message, true)
			}
			return err
		})
		again(8, func(int) error { // pages, from clients that do not read them
			body, err := large.Request("GET", "messages?limit=1000").Stream(attack)
			if err == nil {
				_, _ = io.CopyN(io.Discard, body, 1<<20)
				err = body.Close()
			}
			return err
		})
		again(6, func(int) error { // streams of the same, from clients that stop to read
			body, err := large.Events(attack, 0)
			if err != nil {
				return err
			}
			_, _ = io.CopyN(io.Discard, body, 2<<20)
			return body.Close()
		})
		again(4, func(i int) error { // values whose JSON is small
			bomb := `{"role":"user","content":"x","metadata":{"bomb":[` + strings.Repeat("{},", 250_000) + `{}]}}`
			return large.Request("POST", "messages").SetHeader("Content-Type", "application/json").Body([]byte(bomb)).Do(attack).Error()
		})
		for i := range 6 { // uploads that never end
			group.Go(func() {
				r, w := io.Pipe()
				stop := context.AfterFunc(attack, func() { _ = w.CloseWithError(io.ErrUnexpectedEOF) })
				defer stop()
				go func() { _, _ = w.Write(make([]byte, 512<<10)) }()
				_ = large.Request("PUT", fmt.Sprintf("files/slow-%d", i)).Body(io.Reader(r)).Do(attack).Error()
			})
		}

		told := func() (texts []string) {
			said.Range(func(text, _ any) bool { texts = append(texts, text.(string)); return true })
			return texts
		}
		aboutMemory := ContainElement(Or(ContainSubstring("need more memory than there is"), ContainSubstring("decoded, the value would take more than")))
		explained := func() bool { ok, _ := aboutMemory.Match(told()); return ok }
		var longest time.Duration
		for i := 0; i < calmRounds || !explained(); i++ { // until the spec's time is up
			code, all := round(calmRounds+i, i < calmRounds)
			hurried, longest = append(hurried, code), max(longest, all)
		}
		over()
		group.Wait()

		AddReportEntry("memory", fmt.Sprintf("highest %d MiB, at the end %d MiB; %d requests of the attack served, %d refused with 429; code of the other namespace took %s in the median of %d rounds, and %s before the attack; the longest round took %s", memory.most>>20, memory.now>>20, succeeded.Load(), refused.Load(), median(hurried), len(hurried), median(quiet), longest))
		Expect(small.PID()).To(Equal(pid), "it was not killed")
		Expect(small.Running()).To(BeTrue())
		Expect(memory.most).To(And(BeNumerically(">", 0), BeNumerically("<", podLimit)))
		Expect(told()).To(aboutMemory, "code is told what was wrong with it")
		r, err := large.Code(ctx, runtimev1.CodeRequest{Source: "export default () => Array(100000).fill({a: null}).length"})
		Expect(err).NotTo(HaveOccurred())
		Expect(r.Error).To(BeNil(), "the namespace can work again")
	}, SpecTimeout(8*time.Minute))
})
