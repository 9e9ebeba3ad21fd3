package conformance

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/skein-dev/skein/test/guide"
	"github.com/skein-dev/skein/test/harness"
)

// reader follows a page, with a shell in a folder that looks like the repository, and a namespace that
// has what the page takes for granted.
type reader struct {
	ns     string
	dir    string
	env    []string
	yours  []string          // pairs for strings.Replacer: what the page names and what it is here
	ids    map[string]string // ids that the page shows, and those here
	varies *regexp.Regexp    // what else of outputs differs from run to run
}

func newReader(ns string) *reader {
	GinkgoHelper()
	r := &reader{ns: ns, dir: GinkgoT().TempDir(), ids: map[string]string{}}
	for _, folder := range []string{"config", "hack"} {
		Expect(os.Symlink(filepath.Join(harness.Root(), folder), filepath.Join(r.dir, folder))).To(Succeed())
	}
	// A kubeconfig with the namespace of the reader, and with the other cluster of docs/export.md, which is the same.
	cfg, err := clientcmd.LoadFromFile(cluster.Kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	Expect(clientcmd.ResolveLocalPaths(cfg)).To(Succeed())
	cfg.Contexts[cfg.CurrentContext].Namespace = ns
	cfg.Contexts["other"] = cfg.Contexts[cfg.CurrentContext].DeepCopy()
	kubeconfig := filepath.Join(r.dir, ".kubeconfig")
	Expect(clientcmd.WriteToFile(*cfg, kubeconfig)).To(Succeed())
	// What curl is refused is a failure, not an answer.
	// The gateway of the page is the one of the suite.
	r.write(".curlrc", "fail-with-body\nsilent\nshow-error\nconnect-to = \"localhost:8090:"+door+"\"\n")
	r.env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+cluster.Path(), "CURL_HOME="+r.dir)
	for _, shown := range []string{"namespaces/%s", "namespace=%s", "-n %s", "=%s:", "localhost:8090/%s/"} {
		r.yours = append(r.yours, fmt.Sprintf(shown, "demo"), fmt.Sprintf(shown, ns))
	}
	r.yours = append(r.yours, "-n team-a", "-n "+ns, "annotate namespace shop", "annotate namespace "+ns)
	return r
}

func (r *reader) write(name, text string) {
	GinkgoHelper()
	Expect(os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600)).To(Succeed())
}

// command is a line in the reader's shell. Variables that a page sets stay for its later commands.
func (r *reader) command(ctx SpecContext, text string) *exec.Cmd {
	text = strings.NewReplacer(r.yours...).Replace(text)
	for shown, here := range r.ids {
		text = strings.ReplaceAll(text, shown, here)
	}
	const variables = `declare -p $(compgen -v | grep -xE 'API|NS|THREAD|TOKEN|APISERVER') /dev/null 2>/dev/null >.variables || true`
	cmd := exec.CommandContext(ctx, "bash", "-c", "[ ! -e .variables ] || . ./.variables\nset -euo pipefail\n"+text+"\n"+variables)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = r.dir, r.env, &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// run runs a command of a page and holds its output against what the page shows.
func (r *reader) run(ctx SpecContext, c guide.Command) {
	GinkgoHelper()
	try := func() (string, error) {
		var stderr strings.Builder
		cmd := r.command(ctx, c.Text)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("%s: %s%w\n%s%s", c.From, c.Text, err, out, &stderr)
		}
		return string(out), nil
	}
	compare := func() error {
		out, err := try()
		if err != nil {
			return err
		}
		want, got := c.Output, out
		if r.varies != nil {
			want, got = r.varies.ReplaceAllString(want, "VARIES"), r.varies.ReplaceAllString(got, "VARIES")
		}
		if want != "" && !guide.Same(want, got, needsPods) {
			return fmt.Errorf("%s: %sThe page shows\n%s\nbut it prints\n%s", c.From, c.Text, c.Output, out)
		}
		here := guide.IDs(out)
		for i, shown := range guide.IDs(c.Output) {
			if i < len(here) {
				r.ids[shown] = here[i]
			}
		}
		return nil
	}
	// What an object's status shows follows what happens; a command that changes something is run once.
	if reads := regexp.MustCompile(`^kubectl (get|skein (tree|approvals|retained|memory)) `); reads.MatchString(c.Text) {
		Eventually(ctx, compare).Should(Succeed())
		return
	}
	Expect(compare()).To(Succeed())
}

// needsPods reports whether a line of an output is only there where threads have pods, or only until an effect has fired.
func needsPods(line string) bool {
	return strings.Contains(line, "Pod/") || strings.Contains(line, "ScheduledEffect/")
}

// follow runs a command that goes on until it is interrupted, until it has printed a line.
func (r *reader) follow(ctx SpecContext, c guide.Command) {
	GinkgoHelper()
	cmd := r.command(ctx, c.Text)
	out, err := cmd.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(cmd.Start()).To(Succeed())
	line, err := bufio.NewReader(out).ReadString('\n')
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	_ = cmd.Wait() // it was killed
	Expect(err).To(Or(Not(HaveOccurred()), MatchError(io.EOF)), c.From)
	Expect(line).NotTo(BeEmpty(), "%s: %s", c.From, c.Text)
}

// Each page is followed in a namespace of its own; README says which one it makes.
var _ = Describe("The guide", Label("K8S-04"), func() {
	It("has no command that is neither run nor said to need what a test has not", func() {
		pages, err := guide.Pages(harness.Root())
		Expect(err).NotTo(HaveOccurred())
		elsewhere := maps.Clone(runElsewhere)
		for _, page := range pages {
			commands, err := guide.Commands(harness.Root(), page)
			Expect(err).NotTo(HaveOccurred())
			for _, c := range commands {
				if _, ok := runElsewhere[strings.TrimSpace(c.Text)]; ok {
					delete(elsewhere, strings.TrimSpace(c.Text))
					continue
				}
				Expect(pagesToFollow).To(HaveKey(page), "%s: %s", c.From, c.Text)
			}
		}
		Expect(elsewhere).To(BeEmpty(), "these are in no page any more")
		Expect(pages).To(ContainElements(slices.Collect(maps.Keys(pagesToFollow))))
	})

	It("shows manifests that admission takes", Label("K8S-02"), func(ctx SpecContext) {
		ns := namespace(ctx)
		pages, err := guide.Pages(harness.Root())
		Expect(err).NotTo(HaveOccurred())
		var whole []string // one call for all: names that come twice are no matter in a dry run
		for _, page := range pages {
			blocks, err := guide.Blocks(harness.Root(), page)
			Expect(err).NotTo(HaveOccurred())
			for _, b := range blocks {
				if b.Language == "yaml" && strings.HasPrefix(b.Text, "apiVersion: skein.dev/") {
					whole = append(whole, "# "+b.String()+"\n"+strings.ReplaceAll(b.Text, "namespace: demo", "namespace: "+ns))
				}
			}
		}
		Expect(len(whole)).To(BeNumerically(">", 15))
		_, err = cluster.KubectlIn(ctx, strings.Join(whole, "---\n"), "-n", ns, "apply", "--dry-run=server", "--validate=strict", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
	}, SpecTimeout(2*time.Minute))

	for _, page := range slices.Sorted(maps.Keys(pagesToFollow)) {
		It("works as printed: "+page, func(ctx SpecContext) {
			commands, err := guide.Commands(harness.Root(), page)
			Expect(err).NotTo(HaveOccurred())
			p := pagesToFollow[page]
			var r *reader
			if p.namespace == "" {
				r = newReader(namespace(ctx))
			} else {
				r = newReader(p.namespace)
				r.yours = []string{"", ""}
			}
			r.varies = p.varies
			if p.prepare != nil {
				p.prepare(r, ctx)
			}
			for _, c := range commands {
				text := strings.TrimSpace(c.Text)
				if before := p.before[text]; before != nil {
					before(r, ctx)
				}
				switch {
				case runElsewhere[text] != "":
				case slices.Contains(goesOn, text):
					r.follow(ctx, c)
				default:
					By(c.From)
					r.run(ctx, c)
				}
			}
		}, SpecTimeout(8*time.Minute))
	}
})
