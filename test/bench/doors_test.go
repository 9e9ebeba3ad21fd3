package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/scratch"
	"github.com/skein-dev/skein/test/harness"
)

// What people meet who watch and ask: events of a thread to its watchers, pieces of an answer on their way from the model to the
// client, and requests beside those for ConfigMaps. A control plane without a node, and the manager as a local process.
var _ = Describe("The doors", Label("doors"), Ordered, func() {
	b := &doorBench{}

	BeforeAll(func(ctx SpecContext) {
		var err error
		b.cluster, err = harness.Up(ctx, harness.ClusterOptions{Name: "bench-doors", Log: GinkgoWriter})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) { Expect(b.cluster.Down(ctx)).To(Succeed()) }, NodeTimeout(2*time.Minute))
		Expect(b.cluster.Kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(harness.Root(), "config", "crd"))).Error().NotTo(HaveOccurred())
		Expect(b.cluster.Kubectl(ctx, "wait", "--for=condition=Established", "crd", "-l", "app.kubernetes.io/part-of=skein", "--timeout=2m")).Error().NotTo(HaveOccurred())
		for _, at := range []*string{&b.door, &b.metrics} {
			port, err := scratch.Port()
			Expect(err).NotTo(HaveOccurred())
			*at = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		}
		b.manager, err = b.cluster.NewManager(harness.ManagerOptions{Dir: filepath.Join(GinkgoT().TempDir(), "data"), Log: GinkgoWriter, Args: []string{
			"--gateway-bind-address=" + b.door, "--metrics-bind-address=" + b.metrics, "--tool-private-hosts=127.0.0.1",
			"--runtime-api-limits=userRate=0,userOpen=0,namespaceOpen=0,userLasting=0,namespaceLasting=0",
		}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(b.manager.Stop)
		Expect(b.manager.Start(ctx)).To(Succeed())
		b.ns = namespace(ctx, b.cluster)
		b.token, err = b.cluster.Token(ctx, b.ns, "reader")
		Expect(err).NotTo(HaveOccurred())
		b.declare(ctx)
	}, NodeTimeout(10*time.Minute))

	It("tell watchers of events", func(ctx SpecContext) {
		for _, watchers := range []int{1, 1000} {
			b.watch(ctx, "events", "events?after=latest", watchers, 100, `"event:tick"`)
		}
		for _, watchers := range []int{1, 1000} {
			b.watch(ctx, "changes", "observe?include=values", watchers, 100, "")
		}
	}, NodeTimeout(10*time.Minute))

	It("carry what a model says", func(ctx SpecContext) { b.tokens(ctx, 20) }, NodeTimeout(10*time.Minute))

	It("answer requests", func(ctx SpecContext) { b.requests(ctx, 8, 4*time.Second) }, NodeTimeout(10*time.Minute))
})

// doorBench is a manager that lets clients in.
type doorBench struct {
	cluster       *harness.Cluster
	manager       *harness.Manager
	model         *harness.ChatServer
	door, metrics string // addresses
	ns, token     string
	thread        *harness.Thread
}

// pieces is how many pieces an answer has, and pause what is between two of them.
const (
	pieces = 50
	pause  = 20 * time.Millisecond
)

// declare makes an agent whose model says when it says it, a gateway to it, and a thread.
func (b *doorBench) declare(ctx context.Context) {
	GinkgoHelper()
	b.model = harness.NewChatServer(func(w http.ResponseWriter, _ *http.Request, req harness.ChatRequest) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range pieces {
			time.Sleep(pause)
			_, _ = fmt.Fprintf(w, `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":%q,"choices":[{"index":0,"delta":{"role":"assistant","content":"[%d]"},"finish_reason":null}]}`+"\n\n",
				req.Model, time.Now().UnixNano())
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = io.WriteString(w, `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
	})
	DeferCleanup(b.model.Close)
	keys := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.ns, Name: "keys"}, StringData: map[string]string{"key": "a key that signs, of some characters"}}
	selected := corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "keys"}, Key: "key"}
	create(ctx, b.cluster, harness.OpenAI(b.ns, "model", b.model.URL+"/v1", ""), harness.Prompt(b.ns, "prompt", "model"), harness.Agent(b.ns, "agent", "prompt"), keys,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.ns, Name: "config"}, Data: map[string]string{"a": strings.Repeat("x", 500)}},
		&skeinv1.ThreadGateway{ObjectMeta: metav1.ObjectMeta{Namespace: b.ns, Name: "chat"}, Spec: skeinv1.ThreadGatewaySpec{
			AgentRef: skeinv1.LocalRef{Name: "agent"}, SigningKeys: []corev1.SecretKeySelector{selected},
			Limits: &skeinv1.GatewayLimits{PerAddress: 100_000, PerThread: 100_000, Total: 100_000, NewThreads: 100_000},
		}},
		harness.NewThread(b.ns, "thread", "agent"))
	b.thread = b.cluster.Thread(b.ns, "thread")
	Eventually(ctx, func(g Gomega) {
		o, err := b.thread.Object(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(o.Status.Conditions).To(ContainElement(And(HaveField("Type", skeinv1.ConditionReady), HaveField("Status", metav1.ConditionTrue))))
	}).Should(Succeed())
}

// direct is a client of the manager itself, which trusts its certificate, and the address of a path of the thread.
func (b *doorBench) direct(ctx context.Context) (*http.Client, string) {
	GinkgoHelper()
	var s corev1.Secret
	Expect(b.cluster.Client.Get(ctx, client.ObjectKey{Namespace: harness.SystemNamespace, Name: "skein-runtime-api-tls"}, &s)).To(Succeed())
	c, err := rest.HTTPClientFor(&rest.Config{Host: "https://" + b.manager.RuntimeAddress(), BearerToken: b.token, TLSClientConfig: rest.TLSClientConfig{CAData: s.Data["ca.crt"]}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(c.CloseIdleConnections)
	return c, "https://" + b.manager.RuntimeAddress() + "/apis/runtime.skein.dev/v1alpha1/namespaces/" + b.ns + "/threads/thread"
}

// stream opens a stream and gives each line of data to heard, until that returns false.
func (b *doorBench) stream(ctx context.Context, c *http.Client, url string, opened func(), heard func(line string) bool) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	opened()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && !heard(data) {
			return nil
		}
	}
	return fmt.Errorf("the stream ended: %w", lines.Err())
}

// watch measures how fast what happens in the thread reaches all of so many watchers of a path. Each hears every line that has a
// text, or, where that is empty, as many lines as it takes until the last change is in one.
func (b *doorBench) watch(ctx context.Context, what, path string, watchers, n int, each string) {
	GinkgoHelper()
	c, base := b.direct(ctx)
	var all, open sync.WaitGroup
	var told atomic.Int64
	end := fmt.Sprintf("end-%s-%d", what, watchers)
	open.Add(watchers)
	for range watchers {
		all.Go(func() {
			defer GinkgoRecover()
			left := n
			Expect(b.stream(ctx, c, base+"/"+path, open.Done, func(line string) bool {
				if each != "" && !strings.Contains(line, each) {
					return true
				}
				told.Add(1)
				left--
				return each != "" && left > 0 || each == "" && !strings.Contains(line, end)
			})).To(Succeed())
		})
	}
	open.Wait()
	before, own, began := b.worked(ctx), processors(), time.Now()
	for i := range n {
		value := fmt.Sprint(i)
		if i == n-1 {
			value = end
		}
		if each != "" {
			Expect(b.send(ctx, c, http.MethodPost, base+"/events", `{"event":"tick","data":"`+value+`"}`)).To(Succeed())
		} else {
			Expect(b.send(ctx, c, http.MethodPut, base+"/kv/tick", `"`+value+`"`)).To(Succeed())
		}
	}
	sent := time.Since(began)
	all.Wait()
	took, got := time.Since(began), told.Load()
	manager, clients := b.worked(ctx)-before, processors()-own
	figure(fmt.Sprintf("%s to %d watchers of a thread", what, watchers), "%.0f a second, %.0f deliveries a second  (all written after %.0f%% of the time; the manager %s of a processor for a delivery, %s for one of the %s; the clients %s for a delivery)",
		float64(n)/took.Seconds(), float64(got)/took.Seconds(), 100*sent.Seconds()/took.Seconds(),
		fine(manager/time.Duration(got)), fine(manager/time.Duration(n)), what, fine(clients/time.Duration(got)))
}

// fine rounds times that are far below a millisecond.
func fine(d time.Duration) time.Duration { return d.Round(100 * time.Nanosecond) }

// send makes a request with a body of JSON.
func (b *doorBench) send(ctx context.Context, c *http.Client, method, url, body string) error {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	return answered(c, req)
}

// answered makes a request, reads the answer to its end and returns an error unless it is good.
func answered(c *http.Client, req *http.Request) error {
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return err
}

// stamp is when the model said a piece.
var stamp = regexp.MustCompile(`\[([0-9]{19})\]`)

// late returns how long the pieces in a line were under way. They are stamped in this process, so there is one clock.
func late(line string) (out []time.Duration) {
	now := time.Now()
	for _, m := range stamp.FindAllStringSubmatch(line, -1) {
		at, _ := strconv.ParseInt(m[1], 10, 64)
		out = append(out, now.Sub(time.Unix(0, at)))
	}
	return out
}

// tokens measures how long pieces of an answer take from the model to clients: to one that asks the model itself, which is the floor,
// through the gateway, and by the events of the runtime API.
func (b *doorBench) tokens(ctx context.Context, answers int) {
	GinkgoHelper()
	var floor, gateway, api []time.Duration
	c, base := b.direct(ctx)
	for range answers { // in turns, because the machine's speed changes
		floor = append(floor, b.said(ctx, http.DefaultClient, b.model.URL+"/v1/chat/completions", `{"model":"m","stream":true,"messages":[]}`)...)
		gateway = append(gateway, b.said(ctx, http.DefaultClient, "http://"+b.door+"/"+b.ns+"/chat/v1/message", `{"content":"go"}`)...)
		heard := make(chan []time.Duration, 1)
		open := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			var all []time.Duration
			Expect(b.stream(ctx, c, base+"/events?after=latest", func() { close(open) }, func(line string) bool {
				if strings.Contains(line, `"message.delta"`) {
					all = append(all, late(line)...)
				}
				return !strings.Contains(line, `"run.ended"`)
			})).To(Succeed())
			heard <- all
		}()
		Eventually(ctx, open).Should(BeClosed())
		Expect(b.thread.Say(ctx, "go")).To(Succeed())
		var all []time.Duration
		Eventually(ctx, heard).Should(Receive(&all))
		api = append(api, all...)
	}
	figure("a piece from the model itself to a client", "%s", spread(floor))
	figure("  through the gateway", "%s  (pieces are written every 50 ms at most)", spread(gateway))
	figure("  by the events of the runtime API", "%s", spread(api))
}

// said posts a body and returns how long each piece of the streamed answer was under way.
func (b *doorBench) said(ctx context.Context, c *http.Client, url, body string) (all []time.Duration) {
	GinkgoHelper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	resp, err := c.Do(req)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = resp.Body.Close() }()
	Expect(resp.StatusCode).To(Equal(http.StatusOK))
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	event := ""
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			event = name
		}
		if event == "" || event == "delta" { // not the whole message that follows
			all = append(all, late(lines.Text())...)
		}
	}
	Expect(lines.Err()).NotTo(HaveOccurred())
	return all
}

// requests measures requests a second of so many clients: for a thread's record and its messages, through the API server and
// directly, and by the gateway, beside those for a ConfigMap.
func (b *doorBench) requests(ctx context.Context, clients int, each time.Duration) {
	GinkgoHelper()
	direct, base := b.direct(ctx)
	cfg := rest.AnonymousClientConfig(b.cluster.Config)
	cfg.BearerToken = b.token
	through, err := rest.HTTPClientFor(cfg)
	Expect(err).NotTo(HaveOccurred())
	host := strings.TrimSuffix(cfg.Host, "/")
	thread := "/apis/runtime.skein.dev/v1alpha1/namespaces/" + b.ns + "/threads/thread"
	kinds := []*requestsOf{
		{name: "a ConfigMap of the API server", client: through, url: host + "/api/v1/namespaces/" + b.ns + "/configmaps/config"},
		{name: "  a thread, through the API server", client: through, url: host + thread},
		{name: "  a thread, from the manager", client: direct, url: base},
		{name: "  messages, through the API server", client: through, url: host + thread + "/messages?limit=10"},
		{name: "  messages of a gateway", client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}, url: "http://" + b.door + "/" + b.ns + "/chat/v1/messages"},
	}
	for range 3 { // in turns, because the machine's speed changes
		for _, k := range kinds {
			api, manager := b.apiWorked(ctx), b.worked(ctx)
			k.run(ctx, clients, each/3)
			k.api, k.manager = k.api+b.apiWorked(ctx)-api, k.manager+b.worked(ctx)-manager
		}
	}
	floor := kinds[0].rate()
	for _, k := range kinds {
		figure(k.name, "%.0f a second, %.2f of the ConfigMap's  (%d clients; the API server %s of a processor each, the manager %s)",
			k.rate(), k.rate()/floor, clients, fine(k.api/time.Duration(k.n)), fine(k.manager/time.Duration(k.n)))
	}
}

// requestsOf are requests of one kind.
type requestsOf struct {
	name, url    string
	client       *http.Client
	n            int64
	took         time.Duration
	api, manager time.Duration // of processors
}

func (k *requestsOf) rate() float64 { return float64(k.n) / k.took.Seconds() }

func (k *requestsOf) run(ctx context.Context, clients int, long time.Duration) {
	GinkgoHelper()
	var all sync.WaitGroup
	var n atomic.Int64
	began := time.Now()
	for range clients {
		all.Go(func() {
			defer GinkgoRecover()
			for time.Since(began) < long {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
				Expect(err).NotTo(HaveOccurred())
				Expect(answered(k.client, req)).To(Succeed())
				n.Add(1)
			}
		})
	}
	all.Wait()
	k.n += n.Load()
	k.took += time.Since(began)
}

// worked returns how long processors have worked for the manager.
func (b *doorBench) worked(ctx context.Context) time.Duration {
	GinkgoHelper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.metrics+"/metrics", nil)
	Expect(err).NotTo(HaveOccurred())
	resp, err := http.DefaultClient.Do(req)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	Expect(err).NotTo(HaveOccurred())
	return processorSeconds(string(text))
}

// apiWorked returns how long processors have worked for the process that the API server is in.
func (b *doorBench) apiWorked(ctx context.Context) time.Duration {
	GinkgoHelper()
	text, err := b.cluster.Kubectl(ctx, "get", "--raw", "/metrics")
	Expect(err).NotTo(HaveOccurred())
	return processorSeconds(text)
}

func processorSeconds(metrics string) time.Duration {
	GinkgoHelper()
	m := regexp.MustCompile(`(?m)^process_cpu_seconds_total (\S+)`).FindStringSubmatch(metrics)
	Expect(m).NotTo(BeNil())
	seconds, err := strconv.ParseFloat(m[1], 64)
	Expect(err).NotTo(HaveOccurred())
	return time.Duration(seconds * float64(time.Second))
}
