package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/gateway/openai"
	"github.com/skein-dev/skein/internal/kube/definitions"
)

// streamed is what a client of a stream gets: the texts of its pieces, one after the other.
func streamed(body string) (text string, last string) {
	GinkgoHelper()
	for _, frame := range strings.Split(strings.TrimSpace(body), "\n\n") {
		data := strings.TrimPrefix(frame, "data: ")
		last = data
		var c openai.Completion
		if json.Unmarshal([]byte(data), &c) != nil || len(c.Choices) == 0 {
			continue
		}
		Expect(c.Choices).To(HaveLen(1))
		if t := c.Choices[0].Delta.Content; t != nil {
			text += *t
		}
	}
	return text, last
}

// deadlines is a recorder that takes deadlines, as a connection does.
type deadlines struct{ *httptest.ResponseRecorder }

func (*deadlines) SetWriteDeadline(time.Time) error { return nil }

var _ = Describe("A stream of a chat completion", func() {
	type part = func(c *chatStream) error
	delta := func(id, text string) part {
		return func(c *chatStream) error { return c.delta(piece{messageID: id, Text: text}) }
	}
	reset := func(id, text string) part {
		return func(c *chatStream) error { return c.delta(piece{messageID: id, Text: text, Reset: true}) }
	}
	whole := func(id, text string) part {
		return func(c *chatStream) error { return c.message(Message{ID: id, Role: "assistant", Content: text}) }
	}
	DescribeTable("has each message once", func(want string, parts ...part) {
		w := &deadlines{httptest.NewRecorder()}
		s := serverOf(nil)
		q := &request{Request: get(), answer: w, gateway: s.opts.Gateways.(declared)["ns/chat"]}
		c := newChatStream(s, q, openai.Answer{ID: "chatcmpl-1", Model: "agent"}, true)
		for _, p := range parts {
			Expect(p(c)).To(Succeed())
		}
		c.end(&Answer{Status: statusSucceeded}, nil)
		text, last := streamed(w.Body.String())
		Expect(text).To(Equal(want))
		Expect(last).To(Equal("[DONE]"))
	},
		Entry("without pieces", "hello", whole("1", "hello")),
		Entry("in pieces", "hello", delta("1", "hel"), delta("1", "lo"), whole("1", "hello")),
		Entry("of which the last are missing", "hello", delta("1", "hel"), whole("1", "hello")),
		Entry("of which one in between is missing: the whole message follows", "heo\n\nhello", delta("1", "he"), delta("1", "o"), whole("1", "hello")),
		Entry("two", "one\n\ntwo", delta("1", "one"), whole("1", "one"), delta("2", "tw"), delta("2", "o"), whole("2", "two")),
		Entry("two without pieces", "one\n\ntwo", whole("1", "one"), whole("2", "two")),
		Entry("begun again with the same text", "hello", delta("1", "hel"), reset("1", "hel"), delta("1", "lo"), whole("1", "hello")),
		Entry("begun again with another text", "hel\n\ngood day", delta("1", "hel"), reset("1", "good"), delta("1", " day"), whole("1", "good day")),
		Entry("begun again before anything was said", "hello", reset("1", "hel"), delta("1", "lo"), whole("1", "hello")),
		Entry("nothing", ""),
	)

	It("ends with the problem when there is one", func() {
		w := &deadlines{httptest.NewRecorder()}
		s := serverOf(nil)
		q := &request{Request: get(), answer: w, gateway: s.opts.Gateways.(declared)["ns/chat"]}
		c := newChatStream(s, q, openai.Answer{ID: "chatcmpl-1", Model: "agent"}, false)
		c.end(nil, errFailedRun)
		_, last := streamed(w.Body.String())
		Expect(last).To(ContainSubstring(`"type":"server_error"`))
		Expect(w.Body.String()).NotTo(ContainSubstring("[DONE]"))
	})
})

var _ = Describe("Keys of a gateway", Label("IDS-04"), func() {
	It("are needed on every path once there are any, and count exactly", func() {
		keys := func(g *definitions.Gateway) {
			g.APIKeys = [][]byte{[]byte("the first of the keys"), []byte("the second of them")}
		}
		for given, status := range map[string]int{
			"": 401, "Bearer": 401, "Bearer ": 401, "Bearer the first of the key": 401, "Bearer the first of the keyss": 401, "Basic the first of the keys": 401,
			"the first of the keys": 401, "Bearer the first of the keys": 200, "bearer the second of them": 200, "Bearer the first of the keys the second of them": 401,
		} {
			r := get()
			if given != "" {
				r.Header.Set("Authorization", given)
			}
			got := ask(serverOf(keys), r)
			Expect(got.StatusCode).To(Equal(status), given)
			if status == 200 {
				Expect(got.Header.Get("x-thread-id")).NotTo(BeEmpty(), given)
			} else {
				Expect(got.Header.Get("x-thread-id")).To(BeEmpty(), given)
			}
		}
		twice := get("Authorization", "Bearer the first of the keys", "Authorization", "Bearer the first of the keys")
		Expect(ask(serverOf(keys), twice).StatusCode).To(Equal(401))
		Expect(ask(serverOf(nil), get("Authorization", "Bearer whatever")).StatusCode).To(Equal(200), "no keys are declared")
		Expect(ask(serverOf(keys), httptest.NewRequest(http.MethodGet, "/ns/chat/v1/models", nil)).StatusCode).To(Equal(401))
	})
})

var _ = Describe("The models of a gateway", func() {
	It("are its agent", func() {
		for path, status := range map[string]int{"v1/models": 200, "v1/models/agent": 200, "v1/models/other": 404, "v1/modelsx": 404, "v1/models/agent/x": 404} {
			Expect(ask(serverOf(nil), httptest.NewRequest(http.MethodGet, "/ns/chat/"+path, nil)).StatusCode).To(Equal(status), path)
		}
		Expect(ask(serverOf(nil), httptest.NewRequest(http.MethodDelete, "/ns/chat/v1/models/agent", nil)).StatusCode).To(Equal(405))
	})
})

// full is a share that is used up, once some have entered.
type full struct {
	left    int
	entered []string
	under   int
}

func (f *full) Enter(who, namespace string, lasting bool) (func(), error) {
	f.entered = append(f.entered, fmt.Sprint(who, " ", namespace, " ", lasting))
	if f.left == 0 {
		return nil, errors.New("the namespace ns has too much under way")
	}
	f.left--
	f.under++
	return func() { f.under-- }, nil
}

var _ = Describe("The share of a namespace", Label("K8S-12"), func() {
	It("bounds the requests of a gateway, without naming anything", func() {
		share := &full{left: 1}
		s := serverOf(nil)
		s.opts.Share = share
		Expect(ask(s, get()).StatusCode).To(Equal(200))
		Expect(share.under).To(BeZero(), "the request is over")
		got := ask(s, httptest.NewRequest(http.MethodPost, "/ns/chat/v1/message", strings.NewReader("{}")))
		Expect(got.StatusCode).To(Equal(429))
		Expect(got.Header.Get("Retry-After")).To(Equal("1"))
		body, err := io.ReadAll(got.Body)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(body)).NotTo(ContainSubstring("namespace"))
		Expect(share.entered).To(Equal([]string{"skein:gateway:ns:chat ns false", "skein:gateway:ns:chat ns true"}))
		ask(s, httptest.NewRequest(http.MethodGet, "/ns/other/v1/messages", nil))
		Expect(share.entered).To(HaveLen(2), "what is served nowhere counts for nobody")
	})
})
