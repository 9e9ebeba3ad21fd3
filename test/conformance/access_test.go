package conformance

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/access"
	"github.com/skein-dev/skein/test/harness"
)

// The doors, which are headings of docs/rights.md.
const (
	objectsDoor = "Objects"
	runtimeDoor = "Runtime API"
	pathsDoor   = "Other paths of the runtime API"
	gatewayDoor = "Gateway"
	probesDoor  = "Probes and metrics"
)

// writeRights has the spec write docs/rights.md instead of comparing it.
const writeRights = "SKEIN_WRITE_RIGHTS"

// rerunResource is the row of POST runs/{id}/rerun.
const rerunResource = "threads/runs/{id}/rerun"

func bytesReader(b []byte) io.Reader {
	if b == nil {
		return nil
	}
	return bytes.NewReader(b)
}

// probe is a request that shows what a caller may do and changes nothing.
type probe struct {
	method, url, contentType, body string
	// shows is what an answer contains that holds something of the namespace. When empty, the status decides.
	shows string
	// finds says that the caller is told of nothing when what he asks for is not found.
	finds bool
}

// ask makes the request. Flow control counts the service accounts of a namespace as one user. What it answers says nothing about rights, so
// the request is made again when it says, as clients of Kubernetes do.
func (p probe) ask(ctx context.Context, c *caller) (*http.Response, error) {
	for {
		var body []byte
		if p.body != "" {
			body = []byte(p.body)
		}
		resp, err := c.ask(ctx, p.method, p.url, p.contentType, body)
		if err != nil || resp.StatusCode != http.StatusTooManyRequests {
			return resp, err
		}
		after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return nil, fmt.Errorf("%s %s: %s does not say when to ask again: %w", p.method, p.url, resp.Status, err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Duration(after) * time.Second):
		}
	}
}

// answer says how a door treated a probe of a caller.
func (p probe) answer(ctx context.Context, c *caller) (string, error) {
	ctx, cancel := context.WithCancel(ctx) // ends answers that would last
	defer cancel()
	resp, err := p.ask(ctx, c)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	switch code := resp.StatusCode; {
	case code == http.StatusUnauthorized:
		return access.Unknown, nil
	case code == http.StatusForbidden:
		return access.No, nil
	case code >= 500:
		text, _ := io.ReadAll(resp.Body)
		return "", fmt.Errorf("%s %s: %s: %s", p.method, p.url, resp.Status, text)
	case p.finds && code == http.StatusNotFound:
		return access.Empty, nil
	case p.shows != "":
		text, err := io.ReadAll(resp.Body)
		if err == nil && !strings.Contains(string(text), p.shows) {
			return access.Empty, nil
		}
		return access.Yes, err
	}
	return access.Yes, nil
}

// objectProbe asks the API server about a verb on a kind. What it names does not exist, and writes are dry runs.
func objectProbe(ns, resource, verb string) (probe, error) {
	kind, sub, _ := strings.Cut(resource, "/")
	all := cluster.Config.Host + "/apis/" + skeinv1.GroupVersion.String() + "/namespaces/" + ns + "/" + kind
	one := strings.TrimSuffix(all+"/absent/"+sub, "/")
	switch verb {
	case "get":
		return probe{method: http.MethodGet, url: one}, nil
	case "list":
		return probe{method: http.MethodGet, url: all + "?limit=1"}, nil
	case "watch":
		return probe{method: http.MethodGet, url: all + "?watch=true&timeoutSeconds=30"}, nil
	case "create":
		return probe{method: http.MethodPost, url: all + "?dryRun=All", contentType: "application/json", body: "{}"}, nil
	case "update":
		return probe{method: http.MethodPut, url: one + "?dryRun=All", contentType: "application/json", body: "{}"}, nil
	case "patch":
		return probe{method: http.MethodPatch, url: one + "?dryRun=All", contentType: "application/merge-patch+json", body: "{}"}, nil
	case "delete":
		return probe{method: http.MethodDelete, url: one + "?dryRun=All"}, nil
	case "deletecollection":
		return probe{method: http.MethodDelete, url: all + "?dryRun=All&labelSelector=absent%3Dtrue"}, nil
	}
	return probe{}, fmt.Errorf("%s %s: this spec does not know how to ask for the verb: add it, and a row to %s", verb, resource, access.Page)
}

var runtimeMethods = map[string]string{
	"get": http.MethodGet, "list": http.MethodGet, "watch": http.MethodGet, "create": http.MethodPost, "update": http.MethodPut, "patch": http.MethodPatch, "delete": http.MethodDelete,
}

// runtimeProbes ask the runtime API about a verb, as it is written without and with a path behind. Reading asks for a thread that exists, or
// for the whole namespace. Writing names what does not exist, but where a handler checks more rights of a thread that does.
func runtimeProbes(ns string, t *harness.Thread, id, resource, verb string, namespaced bool) (paths []probe, err error) {
	method, known := runtimeMethods[verb]
	if !known {
		return nil, fmt.Errorf("%s %s: this spec does not know how to ask for the verb: add it, and a row to %s", verb, resource, access.Page)
	}
	root := "/apis/" + runtimev1.GroupVersion.String() + "/"
	if verb == "watch" {
		root += "watch/"
	}
	if namespaced {
		root += "namespaces/" + ns + "/"
	}
	view, sub, below := strings.Cut(resource, "/")
	p := probe{method: method}
	if method != http.MethodGet {
		p.contentType, p.body = "application/json", "{}"
	}
	at := func(path string) probe { q := p; q.url = root + path; return q }
	name := "absent"
	if method == http.MethodGet {
		name = t.Name
	}
	switch resource + " " + verb {
	case "searches list":
		q := at("searches?q=hello&namespace=" + ns)
		q.shows = `"hits":[{`
		return []probe{q}, nil
	case "backups list", "backups watch": // without making one
		return []probe{at("backups?absent=true")}, nil
	case "lookups get":
		q := at("lookups/" + id)
		q.finds = true
		return []probe{q}, nil
	case "threads/fork create": // of a message that is not there
		q := at("threads/" + t.Name + "/fork")
		q.body = `{"messageId":"absent"}`
		return []probe{q}, nil
	case rerunResource + " create": // of a run that is not there
		q := at("threads/" + t.Name + "/runs/absent/rerun")
		q.body = `{"step":1}`
		return []probe{q}, nil
	case "threads/handoff create": // without a goal
		return []probe{at("threads/" + t.Name + "/handoff")}, nil
	}
	switch {
	case view == runtimev1.ThreadsResource && below:
		return []probe{at("threads/" + name + "/" + sub), at("threads/absent/" + sub + "/absent")}, nil
	case view == runtimev1.ThreadsResource:
		return []probe{at("threads/" + name), at("threads/absent")}, nil
	case below:
		return []probe{at(view + "/absent/" + sub), at(view + "/absent/" + sub + "/absent")}, nil
	case verb == "list" || verb == "watch":
		return []probe{at(view)}, nil
	case verb == "create":
		return []probe{at(view), at(view + "/absent")}, nil
	}
	return []probe{at(view + "/absent")}, nil
}

// inquiry gathers the answers of all callers to probes, which must be the same for all probes of a row.
type inquiry struct {
	list  map[string]*caller
	group *errgroup.Group
	mu    sync.Mutex
	table access.Table
}

func (a *inquiry) row(ctx context.Context, r access.Row, probes ...probe) {
	a.mu.Lock()
	answers := a.table[r]
	if answers == nil {
		answers = map[string]string{}
		a.table[r] = answers
	}
	a.mu.Unlock()
	for who, c := range a.list {
		for _, p := range probes {
			a.group.Go(func() error {
				got, err := p.answer(ctx, c)
				if err != nil {
					return fmt.Errorf("%s, as %s: %w", r, who, err)
				}
				a.mu.Lock()
				defer a.mu.Unlock()
				if before := answers[who]; before != "" && before != got {
					return fmt.Errorf("%s, as %s: %s %s was answered with %q, and another way to ask for the same with %q", r, who, p.method, p.url, got, before)
				}
				answers[who] = got
				return nil
			})
		}
	}
}

// underHealth are the single checks of a health path.
var underHealth = regexp.MustCompile(`^/(livez|readyz|healthz)/.+`)

var _ = Describe("Who may do what", Label("K8S-04"), func() {
	It("is what docs/rights.md says, for every verb that is served, at each door", func(ctx SpecContext) {
		for file := range allRoles {
			_, err := cluster.Kubectl(ctx, "apply", "--server-side", "-f", filepath.Join(harness.Root(), "config", "rbac", file+"_role.yaml"))
			Expect(err).NotTo(HaveOccurred())
		}
		lookup := filepath.Join(harness.Root(), "config", "rbac", "lookup_role.yaml")
		_, err := cluster.Kubectl(ctx, "apply", "--server-side", "-f", lookup)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) {
			_, err := cluster.Kubectl(ctx, "delete", "-f", lookup)
			Expect(err).NotTo(HaveOccurred())
		})
		ns, _ := openDoor(ctx, []skeinv1.ScriptStep{harness.Echo()})
		t := cluster.Thread(ns, "thread")
		create(ctx, harness.NewThread(ns, "thread", "agent"), &skeinv1.WebhookReceiver{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "deliveries"},
			Spec: skeinv1.WebhookReceiverSpec{Form: skeinv1.WebhookGitHub, SigningKeys: []corev1.SecretKeySelector{gatewayKey("first")}, ThreadRef: &skeinv1.LocalRef{Name: "thread"}}})
		ready(ctx, t)
		say(ctx, t, 1, "hello")
		object, err := t.Object(ctx)
		Expect(err).NotTo(HaveOccurred())

		var tlsSecret corev1.Secret
		Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: harness.SystemNamespace, Name: "skein-runtime-api-tls"}, &tlsSecret)).To(Succeed())
		trusted := x509.NewCertPool()
		Expect(trusted.AppendCertsFromPEM(tlsSecret.Data["ca.crt"])).To(BeTrue())
		Expect(trusted.AppendCertsFromPEM(cluster.Config.CAData)).To(BeTrue())
		group, asking := errgroup.WithContext(ctx)
		group.SetLimit(8)
		a := &inquiry{list: callers(ctx, ns, trusted), group: group, table: access.Table{}}
		Expect(a.list).To(HaveLen(len(access.Who)))

		expected, err := access.Read(harness.Root())
		Expect(err).NotTo(HaveOccurred())
		discoverer, err := discovery.NewDiscoveryClientForConfig(cluster.Config)
		Expect(err).NotTo(HaveOccurred())
		kinds, err := discoverer.ServerResourcesForGroupVersion(skeinv1.GroupVersion.String())
		Expect(err).NotTo(HaveOccurred())
		for _, r := range kinds.APIResources {
			for _, verb := range r.Verbs {
				p, err := objectProbe(ns, r.Name, verb)
				Expect(err).NotTo(HaveOccurred())
				a.row(asking, access.Row{Door: objectsDoor, Resource: r.Name, Verb: verb}, p)
			}
		}

		direct := "https://" + manager.RuntimeAddress()
		served, err := discoverer.ServerResourcesForGroupVersion(runtimev1.GroupVersion.String())
		Expect(err).NotTo(HaveOccurred())
		rerun := metav1.APIResource{Name: rerunResource, Namespaced: true, Verbs: metav1.Verbs{"create"}} // asks for more than threads/runs
		for _, r := range append(served.APIResources, rerun) {
			verbs := r.Verbs
			if r.Name == runtimev1.ThreadsResource {
				verbs = append(verbs, "patch") // discovery leaves it out, see internal/apiserver/router
			}
			for _, verb := range verbs {
				ways, err := runtimeProbes(ns, t, object.Status.ThreadID, r.Name, verb, r.Namespaced)
				Expect(err).NotTo(HaveOccurred())
				var probes []probe
				for _, p := range ways {
					for _, host := range []string{cluster.Config.Host, direct} {
						q := p
						q.url = host + p.url
						probes = append(probes, q)
					}
				}
				a.row(asking, access.Row{Door: runtimeDoor, Resource: r.Name, Verb: verb}, probes...)
			}
		}

		resp, err := a.list["cluster admin"].ask(ctx, http.MethodGet, direct+"/", "", nil)
		Expect(err).NotTo(HaveOccurred())
		var root struct{ Paths []string }
		Expect(json.NewDecoder(resp.Body).Decode(&root)).To(Succeed())
		Expect(resp.Body.Close()).To(Succeed())
		Expect(root.Paths).To(ContainElement("/readyz"))
		for _, path := range append(root.Paths, "/") {
			a.row(asking, access.Row{Door: pathsDoor, Resource: underHealth.ReplaceAllString(path, "/$1/{check}"), Verb: "GET"}, probe{method: http.MethodGet, url: direct + path})
		}
		for r := range expected {
			if r.Door == gatewayDoor { // a test of internal/gateway compares these rows with what is served
				name := "chat"
				if strings.HasSuffix(r.Resource, "webhook") {
					name = "deliveries"
				}
				a.row(asking, r, probe{method: r.Verb, url: "http://" + door + "/" + ns + "/" + name + "/" + r.Resource, contentType: "application/json", body: "{"})
			}
		}
		for path, url := range map[string]string{"/healthz": manager.HealthAddress(), "/readyz": manager.HealthAddress(), "/metrics": figures} {
			a.row(asking, access.Row{Door: probesDoor, Resource: path, Verb: "GET"}, probe{method: http.MethodGet, url: "http://" + url + path})
		}
		Expect(group.Wait()).To(Succeed())

		if os.Getenv(writeRights) != "" {
			Expect(a.table.Write(harness.Root())).To(Succeed())
			return
		}
		Expect(expected.Differences(a.table)).To(BeEmpty(), "change the roles back, or run this spec with %s=1 and look at what it writes", writeRights)
	}, SpecTimeout(5*time.Minute))
})
