package console_test

import (
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/coder/websocket"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/cmd/kubectl-skein/internal/console"
)

// patience bounds what must happen, with room for busy machines. No spec measures it.
const patience = time.Minute

func TestConsole(t *testing.T) {
	RegisterFailHandler(Fail)
	EnforceDefaultTimeoutsWhenUsingContexts()
	SetDefaultEventuallyTimeout(patience)
	RunSpecs(t, "Console")
}

// page is what the specs serve in place of the page.
var page = fstest.MapFS{
	"index.html": {Data: []byte("<!doctype html><title>page</title>")},
	"console.js": {Data: []byte("export {}")},
	"notes.go":   {Data: []byte("package notes")},
	"dist/a.css": {Data: []byte("a{}")},
}

// configOf returns the viewer's access to an API server.
func configOf(s *httptest.Server) *rest.Config {
	return &rest.Config{
		Host: s.URL, BearerToken: "viewer",
		TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})},
	}
}

// optionsFor returns options for an API server, with functions that do little.
func optionsFor(s *httptest.Server) console.Options {
	return console.Options{
		Config: configOf(s), Context: "here", Namespace: "demo", Version: "v0", Page: page,
		Thread: func(t *skeinv1.Thread) console.ThreadRow {
			return console.ThreadRow{Namespace: t.Namespace, Name: t.Name, ID: string(t.UID), Title: t.Spec.Title, Messages: t.Status.Messages}
		},
		Effect: func(e *skeinv1.ScheduledEffect) console.EffectRow {
			return console.EffectRow{Namespace: e.Namespace, Name: e.Name, Phase: e.Status.Phase}
		},
		RunEffect:     func(context.Context, console.Object, string) ([]string, error) { return nil, nil },
		SuspendEffect: func(context.Context, console.Object, bool) (bool, string, error) { return false, "", nil },
		Role:          func(verb, resource, _ string) string { return "role-to-" + verb },
		Advice:        func(s metav1.Status) string { return "" },
		Retry:         &wait.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 1},
	}
}

// browser is a browser that has opened the console.
type browser struct {
	base, token string
	client      *http.Client
	server      *console.Server
	ended       chan error // has the result of Serve
	stop        context.CancelFunc
}

// open serves a console until the spec ends, and logs in.
func open(o console.Options) *browser {
	GinkgoHelper()
	b := stranger(o)
	res, err := b.client.Get(b.base + "/login?token=" + b.token)
	Expect(err).NotTo(HaveOccurred())
	Expect(res.Body.Close()).To(Succeed())
	Expect(res.StatusCode).To(Equal(http.StatusOK))
	return b
}

// stranger serves a console until the spec ends, and does not log in.
func stranger(o console.Options) *browser {
	GinkgoHelper()
	l, err := console.Listen(0)
	Expect(err).NotTo(HaveOccurred())
	s, err := console.New(l, o)
	Expect(err).NotTo(HaveOccurred())
	ctx, stop := context.WithCancel(context.Background())
	b := &browser{server: s, ended: make(chan error, 1), stop: stop}
	go func() { b.ended <- s.Serve(ctx, l) }()
	DeferCleanup(func(ctx SpecContext) {
		stop()
		Eventually(ctx, b.ended).Should(Receive(BeNil()))
	})
	var login bool
	b.base, b.token, login = strings.Cut(s.Address(), "/login?token=")
	Expect(login).To(BeTrue())
	jar, err := cookiejar.New(nil)
	Expect(err).NotTo(HaveOccurred())
	b.client = &http.Client{Jar: jar, Transport: &http.Transport{}}
	DeferCleanup(b.client.CloseIdleConnections)
	return b
}

// reply is an answer that has been read.
type reply struct {
	*http.Response
	Text string
}

// do sends a request with headers, which are names and values.
func (b *browser) do(ctx context.Context, method, path, body string, headers ...string) reply {
	GinkgoHelper()
	r, err := http.NewRequestWithContext(ctx, method, b.base+path, strings.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := b.client.Do(r)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	Expect(err).NotTo(HaveOccurred())
	return reply{res, string(text)}
}

func (b *browser) get(ctx context.Context, path string, headers ...string) reply {
	GinkgoHelper()
	return b.do(ctx, http.MethodGet, path, "", headers...)
}

// socket opens a WebSocket. The origin is that of the page unless the headers have another one.
func (b *browser) socket(ctx context.Context, path string, o websocket.DialOptions) (*websocket.Conn, *http.Response, error) {
	if o.HTTPHeader == nil {
		o.HTTPHeader = http.Header{}
	}
	if o.HTTPHeader.Get("Origin") == "" {
		o.HTTPHeader.Set("Origin", b.base)
	}
	o.HTTPClient = b.client
	return websocket.Dial(ctx, b.base+path, &o)
}

// haveStatus matches an error of the console: a Status with a code and a part of its message.
func haveStatus(code int, message string) OmegaMatcher {
	return And(HaveField("StatusCode", code), HaveField("Text", And(ContainSubstring(`"kind":"Status"`), ContainSubstring(message))))
}
