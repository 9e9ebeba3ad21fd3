package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// heardEvent is an event as a client of others has heard it.
type heardEvent struct{ ID, Type string }

// clientLine is a line that a program of test/fixtures/clients prints.
type clientLine struct {
	Client int
	Open   *string // the subprotocol of a WebSocket
	Opened int     // how often a stream has begun
	Heard  string
	Status *int
	Body   string
	Error  string
	Closed *int
	Events []heardEvent
	Value  *runtimev1.ObservedThread
	Answer *string
	Thread string
}

// clientsOfOthers is a program of test/fixtures/clients that runs.
type clientsOfOthers struct {
	mu    sync.Mutex
	lines []clientLine
}

// startClients starts a program of test/fixtures/clients with its settings.
func startClients(ctx context.Context, program string, settings map[string]any) *clientsOfOthers {
	GinkgoHelper()
	set, err := json.Marshal(settings)
	Expect(err).NotTo(HaveOccurred())
	trusted := rest.CopyConfig(cluster.Config)
	Expect(rest.LoadTLSFiles(trusted)).To(Succeed())
	ca := filepath.Join(GinkgoT().TempDir(), "ca.crt")
	Expect(os.WriteFile(ca, trusted.CAData, 0o600)).To(Succeed())

	run := exec.CommandContext(ctx, "node", "--input-type=module", "-e", clientProgram(program), string(set))
	run.Dir = npmPackages(ctx, "streams")
	run.Env = append(os.Environ(), "NODE_EXTRA_CA_CERTS="+ca)
	return startProgram(run)
}

// npmPackages returns the folder with the packages that hack/npm/NAME pins.
func npmPackages(ctx context.Context, name string) string {
	GinkgoHelper()
	install := exec.CommandContext(ctx, filepath.Join(harness.Root(), "hack", "npm.sh"), "install", name)
	install.Stderr = GinkgoWriter
	dir, err := install.Output()
	Expect(err).NotTo(HaveOccurred())
	return strings.TrimSpace(string(dir))
}

// clientProgram returns the text of a program of test/fixtures/clients.
func clientProgram(name string) string {
	GinkgoHelper()
	text, err := os.ReadFile(filepath.Join(harness.Root(), "test", "fixtures", "clients", name))
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// startProgram starts a program and reads what it prints. It is ended with the spec.
func startProgram(run *exec.Cmd) *clientsOfOthers {
	GinkgoHelper()
	run.Stderr = GinkgoWriter
	out, err := run.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(run.Start()).To(Succeed())
	c := &clientsOfOthers{}
	read := make(chan struct{})
	go func() {
		defer close(read)
		c.read(out)
	}()
	DeferCleanup(func() {
		_ = run.Process.Kill() // it has ended by itself, unless the spec failed
		<-read
		_ = run.Wait()
	})
	return c
}

func (c *clientsOfOthers) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var l clientLine
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			l.Error = lines.Text()
		}
		c.mu.Lock()
		c.lines = append(c.lines, l)
		c.mu.Unlock()
	}
}

// of waits until as many clients have said something, and returns the last such thing that each has said, in the clients' order.
func (c *clientsOfOthers) of(ctx context.Context, n int, what func(clientLine) bool) []clientLine {
	GinkgoHelper()
	said := map[int]clientLine{}
	Eventually(ctx, func(g Gomega) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, l := range c.lines {
			if what(l) {
				said[l.Client] = l
			}
		}
		g.Expect(said).To(HaveLen(n), "%+v", c.lines[max(0, len(c.lines)-20):])
	}).Should(Succeed())
	out := make([]clientLine, 0, n)
	for i := range n {
		out = append(out, said[i])
	}
	return out
}

func hasOpened(l clientLine) bool  { return l.Open != nil || l.Opened > 0 }
func wasRefused(l clientLine) bool { return l.Status != nil }
func hungUp(l clientLine) bool     { return l.Events != nil }
func wasAnswered(l clientLine) bool {
	return l.Answer != nil
}

func heardBy(what string) func(clientLine) bool {
	return func(l clientLine) bool { return l.Heard == what }
}

// eventKinds are what the clients of the specs listen to.
var eventKinds = []string{"run.started", "run.ended", "message.queued", "message.created", "message.delta", "event:begin", "event:middle", "event:end"}

// inLog are the events of a thread after one, as the log has them.
func inLog(ctx context.Context, t *harness.Thread, after int64) []heardEvent {
	GinkgoHelper()
	log, err := t.Log(ctx)
	Expect(err).NotTo(HaveOccurred())
	var events []heardEvent
	for _, e := range log {
		if e.Seq > after && slices.Contains(eventKinds, e.Type) {
			events = append(events, heardEvent{strconv.FormatInt(e.Seq, 10), e.Type})
		}
	}
	return events
}

// listenedTo returns those that the clients of the specs listen to.
func listenedTo(events []heardEvent) []heardEvent {
	return slices.DeleteFunc(slices.Clone(events), func(e heardEvent) bool { return !slices.Contains(eventKinds, e.Type) })
}

// through puts a link before a server, and returns it with the address of a path through it.
func through(server string) (link *harness.Link, base string) {
	GinkgoHelper()
	u, err := url.Parse(server)
	Expect(err).NotTo(HaveOccurred())
	link, err = harness.NewLink(u.Host)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(link.Close)
	return link, u.Scheme + "://" + link.Address()
}

var _ = Describe("Clients of others", func() {
	const many = 20
	// scene is a thread that has answered once, and a token for it.
	scene := func(ctx context.Context) (t *harness.Thread, token, path string) {
		GinkgoHelper()
		ns := namespace(ctx)
		t = converse(ctx, ns, nil, []skeinv1.ScriptStep{harness.Echo()})
		say(ctx, t, 1, "before")
		token, err := cluster.Token(ctx, ns, "reader")
		Expect(err).NotTo(HaveOccurred())
		return t, token, strings.TrimPrefix(golangURL(t, ""), strings.TrimSuffix(cluster.Config.Host, "/"))
	}
	bearer := func(token string) map[string]string { return map[string]string{"Authorization": "Bearer " + token} }

	It("of WebSockets hear every event once, from now on or from a place in the log, twenty at once", Label("EVT-01", "EVT-03"), func(ctx SpecContext) {
		t, token, path := scene(ctx)
		before := inLog(ctx, t, 0)
		socket := strings.Replace(strings.TrimSuffix(cluster.Config.Host, "/"), "https:", "wss:", 1) + path + "events"
		settings := map[string]any{"token": token, "protocol": runtimev1.EventsSubprotocol, "clients": many, "until": "event:end"}
		with := func(after string) map[string]any {
			s := map[string]any{"url": socket + "?after=" + after}
			for k, v := range settings {
				s[k] = v
			}
			return s
		}
		latest, middle := startClients(ctx, "websockets.mjs", with("latest")), startClients(ctx, "websockets.mjs", with(before[2].ID))
		for _, l := range append(latest.of(ctx, many, hasOpened), middle.of(ctx, many, hasOpened)...) {
			Expect(*l.Open).To(Equal(runtimev1.EventsSubprotocol))
		}
		Expect(golang(t).Emit(ctx, "begin", nil)).To(Succeed())
		say(ctx, t, 2, "between")
		Expect(golang(t).Emit(ctx, "end", nil)).To(Succeed())
		all := inLog(ctx, t, 0)
		for _, l := range latest.of(ctx, many, hungUp) {
			Expect(listenedTo(l.Events)).To(Equal(all[len(before):]))
			Expect(*l.Closed).To(Equal(1000))
		}
		for _, l := range middle.of(ctx, many, hungUp) {
			Expect(listenedTo(l.Events)).To(Equal(all[3:]))
		}

		By("with what cannot work")
		for _, row := range []struct {
			query  string
			token  any
			status int
			says   string
		}{
			{"", "wrong", 401, "Unauthorized"},
			{"", nil, 403, "system:anonymous"},
			{"?after=1000000", token, 422, "has not happened in this thread"},
			{"?after=yesterday", token, 422, "neither the sequence number of an event"},
			{"?before=1", token, 422, "before"},
		} {
			s := map[string]any{"url": socket + row.query, "protocol": runtimev1.EventsSubprotocol, "clients": 1, "until": "event:end"}
			if row.token != nil {
				s["token"] = row.token
			}
			l := startClients(ctx, "websockets.mjs", s).of(ctx, 1, wasRefused)[0]
			Expect(*l.Status).To(Equal(row.status), "%+v: %s", row, l.Body)
			Expect(l.Body).To(ContainSubstring(row.says))
		}
	}, SpecTimeout(5*patience))

	It("of server-sent events continue by themselves where their connection broke, and lose nothing, twenty at once", Label("EVT-03"), func(ctx SpecContext) {
		t, token, path := scene(ctx)
		first := inLog(ctx, t, 0)
		link, base := through(cluster.Config.Host)
		settings := map[string]any{"url": base + path + "events?after=" + first[1].ID, "headers": bearer(token), "clients": many, "names": eventKinds, "until": "event:end"}
		clients := startClients(ctx, "events.mjs", settings)
		Expect(golang(t).Emit(ctx, "begin", nil)).To(Succeed())
		clients.of(ctx, many, heardBy("event:begin"))
		link.Leave()
		say(ctx, t, 2, "while nobody is there")
		link.Return()
		Expect(golang(t).Emit(ctx, "middle", nil)).To(Succeed())
		clients.of(ctx, many, heardBy("event:middle"))
		link.Cut()
		Expect(golang(t).Emit(ctx, "end", nil)).To(Succeed())
		all := inLog(ctx, t, 0)
		for _, l := range clients.of(ctx, many, hungUp) {
			Expect(l.Events).To(Equal(all[2:]))
			Expect(l.Opened).To(BeNumerically(">=", 2), "it has connected again")
		}

		By("with what cannot work")
		for _, row := range []struct {
			headers map[string]string
			status  int
		}{
			{bearer("wrong"), 401},
			{nil, 403},
			{map[string]string{"Authorization": "Bearer " + token, "Last-Event-ID": "1000000"}, 422},
			{map[string]string{"Authorization": "Bearer " + token, "Last-Event-ID": "x"}, 422},
		} {
			settings["headers"], settings["clients"] = row.headers, 1
			l := startClients(ctx, "events.mjs", settings).of(ctx, 1, wasRefused)[0]
			Expect(*l.Status).To(Equal(row.status), "%+v: %s", row, l.Error)
		}
	}, SpecTimeout(5*patience))

	It("of server-sent events and JSON Patches arrive at the value that the API has, over a connection that breaks", Label("EVT-02"), func(ctx SpecContext) {
		t, token, path := scene(ctx)
		link, base := through(cluster.Config.Host)
		clients := startClients(ctx, "observe.mjs", map[string]any{"url": base + path + "observe", "headers": bearer(token), "clients": many, "messages": 6})
		clients.of(ctx, many, hasOpened)
		say(ctx, t, 2, "second")
		clients.of(ctx, many, heardBy("patch"))
		link.Cut()
		want := texts(say(ctx, t, 3, "third"))
		for _, l := range clients.of(ctx, many, func(l clientLine) bool { return l.Value != nil }) {
			Expect(texts(l.Value.Messages)).To(Equal(want))
		}
	}, SpecTimeout(5*patience))

	It("of server-sent events get the whole answer of a gateway once, although their connection breaks in it", Label("EVT-03", "IDS-03", "IDS-04"), func(ctx SpecContext) {
		ns, release := namespace(ctx), make(chan struct{})
		first := strings.Repeat("one ", 100) // the end of a piece is held back until the next one: it could be the beginning of a secret
		server := harness.NewChatServer(func(w http.ResponseWriter, r *http.Request, req harness.ChatRequest) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprintf(w, "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":%q,\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":%q},\"finish_reason\":null}]}\n\n", req.Model, first)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-release:
				harness.Say(w, req.Model, "two")
			case <-r.Context().Done():
			}
		})
		DeferCleanup(server.Close)
		g := gatewayOf(ns, "chat", "agent")
		create(ctx, harness.OpenAI(ns, "model", server.URL+"/v1", ""), harness.Prompt(ns, "prompt", "model"), harness.Agent(ns, "agent", "prompt"), gatewayKeys(ns), g)
		gatewayIs(ctx, g, condition(skeinv1.ConditionReady, "True"))
		link, base := through("http://" + door)
		base += "/" + ns + "/chat"
		clients := startClients(ctx, "answers.mjs", map[string]any{"base": base, "content": "count", "clients": many})
		clients.of(ctx, many, func(l clientLine) bool { return l.Heard != "" })
		link.Cut()
		clients.of(ctx, many, func(l clientLine) bool { return l.Opened == 2 })
		close(release)
		for _, l := range clients.of(ctx, many, wasAnswered) {
			Expect(*l.Answer).To(Equal(first + "two"))
			Expect(l.Thread).To(HavePrefix("thrd_"))
		}
		threads := madeThreads(ctx, ns)
		Expect(threads).To(HaveLen(many))
		for _, o := range threads {
			ms, err := cluster.Thread(ns, o.Name).Messages(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(texts(ms)).To(Equal([]string{"user: count", "assistant: " + first + "two"}), "nothing was said twice")
		}

		By("with an id that is forged")
		changeGateway(ctx, g, func(s *skeinv1.ThreadGatewaySpec) { s.Strict = true })
		gatewayIs(ctx, g, condition(skeinv1.ConditionReady, "True"))
		Eventually(ctx, func() int {
			return knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "", "x-thread-id", "thrd_00000000000000000000000000;AAAA").status
		}).Should(Equal(401))
		l := startClients(ctx, "answers.mjs", map[string]any{"base": base, "content": "count", "clients": 1, "id": "thrd_00000000000000000000000000;AAAA"}).of(ctx, 1, wasRefused)[0]
		Expect(ptr.Deref(l.Status, 0)).To(Equal(401))
		Expect(madeThreads(ctx, ns)).To(HaveLen(many))
	}, SpecTimeout(5*patience))
})
