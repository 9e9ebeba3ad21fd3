package apiserver

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/router"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread/life"
)

// write is what the walk knows about a way to write: a correct call.
type write struct {
	// path is below the subresource of a nested write.
	path string
	// good is a body that is accepted; empty means none.
	good string
	// any means that every body is accepted, as bytes or as a value. The limit of its size is still checked unless it
	// is streamed.
	any bool
	// streamed means that the body has no size limit.
	streamed bool
	// fields means that unknown fields are a result, not an error.
	outcome bool
	// stays means that a terminated thread accepts it too.
	stays bool
	// child means that only a child can do it.
	child bool
	// held means that only the holder of a lease can do it, as the specs of leases show.
	held bool
}

// writes lists every way to write below a thread: "verb subresource", with a "/" at the end for nested ones.
var writes = map[string]write{
	"create compact":       {good: `{}`},
	"create truncate":      {good: `{"messageIndex":-1}`, stays: true},
	"create fork":          {good: `{"messageIndex":0}`, stays: true},
	"create relationships": {good: `{"threadID":"parent","type":"mention","role":"child"}`},
	"create handoff":       {good: `{"goal":"x"}`},

	"create state":      {good: `{"ops":[{"op":"set","key":"k","value":1}]}`},
	"update state/":     {path: "k", good: `1`, any: true},
	"delete state/":     {path: "k", stays: true},
	"create import":     {good: `{"agentId":"a","createdAt":"2026-01-01T00:00:00Z"}`, any: true, streamed: true},
	"patch ":            {good: `{"draft":"x"}`, stays: true},
	"create skills":     {good: `{"name":"x"}`},
	"create lease":      {good: `{"ttlSeconds":5}`, stays: true},
	"update lease":      {good: `{"ttlSeconds":5}`, stays: true, held: true},
	"delete lease":      {stays: true, held: true},
	"create messages":   {good: `{"content":"x"}`},
	"patch messages/":   {path: "m1", good: `{"content":"y"}`},
	"delete messages/":  {path: "m1", stays: true},
	"create queue":      {good: `{"content":"x"}`},
	"create events":     {good: `{"event":"x"}`},
	"update files/":     {path: "a.txt", any: true, streamed: true},
	"delete files/":     {path: "a.txt", stays: true},
	"create approvals/": {path: "call_1", good: `{"decision":"approve"}`},
	"create runs/":      {path: "sess_1/cancel", good: `{}`, stays: true},
	"create stop":       {good: `{}`, stays: true},
	"create terminate":  {good: `{}`, stays: true},
	"create destroy":    {good: `{}`, stays: true},
	"create continue":   {good: `{}`},
	"update kv/":        {path: "k", good: `1`, any: true},
	"delete kv/":        {path: "k", stays: true},
	"create code":       {good: `{"source":"export default 1"}`, outcome: true},
	"create effects":    {good: `{"name":"e"}`},
	"delete effects/":   {path: "5c4fe7a4-7a7c-4c7b-9e0e-000000000001", stays: true},
	"create tools/":     {path: "get_value", good: `{"arguments":{"key":"k"}}`},
	"create endpoints":  {},
	"update endpoints":  {},
	"patch endpoints":   {},
	"delete endpoints":  {},
	"create endpoints/": {path: "x"},
	"update endpoints/": {path: "x"},
	"patch endpoints/":  {path: "x"},
	"delete endpoints/": {path: "x"},
	"update env/":       {path: "REGION", good: `{"value":"north","type":"text"}`},
	"delete env/":       {path: "REGION", stays: true},
	"create notify":     {good: `{"content":"x"}`, child: true},
	"update status":     {good: `{"status":"x"}`, child: true},
}

// writing maps the verbs that authorization has for writes to their methods.
var writing = map[string]string{"create": http.MethodPost, "update": http.MethodPut, "patch": http.MethodPatch, "delete": http.MethodDelete}

// served returns every way to write that the router has.
func served() (keys []string) {
	for sub, r := range (&Server{}).handlers().routes() {
		for verb := range r.Plain {
			keys = append(keys, verb+" "+string(sub))
		}
		for verb := range r.Nested {
			keys = append(keys, verb+" "+string(sub)+"/")
		}
	}
	slices.Sort(keys)
	return slices.DeleteFunc(keys, func(key string) bool {
		verb, _, _ := strings.Cut(key, " ")
		return writing[verb] == ""
	})
}

// eachWrite calls a function for every way to write that the router has.
func eachWrite(f func(key, method, path string, w write)) {
	GinkgoHelper()
	for _, key := range served() {
		verb, sub, _ := strings.Cut(key, " ")
		w, known := writes[key]
		if !known {
			continue // one spec reports it, which is enough
		}
		path := "/" + sub
		if sub == "" {
			path = ""
		}
		By(key)
		f(key, writing[verb], path+w.path, w)
	}
}

// refused sends a request that must be refused and returns the Status.
func (e *testEnv) refused(user, method, path, body, contentType string) metav1.Status {
	GinkgoHelper()
	return e.status(method, path, body, "Authorization", "Bearer "+user, "Content-Type", contentType)
}

var _ = Describe("every way to write", Label("THR-18"), func() {
	const asJSON = "application/json"
	parentAndChild := func() (*testEnv, string) {
		e := newEnv()
		parent, _ := e.thread("parent")
		e.child("hello", parent)
		return e, "hello"
	}

	It("needs its right, and a thread", Label("K8S-04"), func() {
		e, _ := parentAndChild()
		eachWrite(func(key, method, path string, w write) {
			s := e.refused("bob", method, at("hello", path), w.good, asJSON)
			Expect(s.Reason).To(Equal(metav1.StatusReasonForbidden), key)
			s = e.refused("alice", method, at("nobody", path), w.good, asJSON)
			Expect(s.Reason).To(Equal(metav1.StatusReasonNotFound), key)
			Expect(s.Details.Name).To(Equal("nobody"), key)
		})
	})

	It("says what is wrong with a body", func() {
		e, name := parentAndChild()
		eachWrite(func(key, method, path string, w write) {
			if w.good == "" {
				return
			}
			s := e.refused("alice", method, at(name, path), `{"cut": "off`, asJSON)
			if w.any { // the domain reports it and names the field
				Expect(s.Reason).To(Equal(metav1.StatusReasonInvalid), key)
			} else {
				Expect(s.Reason).To(Equal(metav1.StatusReasonBadRequest), key)
			}
			Expect(s.Message).To(ContainSubstring("JSON"), key)
			if !w.any && !w.outcome {
				s = e.refused("alice", method, at(name, path), `{"no-such-field":1}`, asJSON)
				Expect(s.Reason).To(Equal(metav1.StatusReasonInvalid), key)
				Expect(s.Message).To(ContainSubstring("no-such-field"), key)
				Expect(s.Details.Causes).NotTo(BeEmpty(), key)
			}
			s = e.refused("alice", method, at(name, path), `<a/>`, "text/xml")
			Expect(s.Reason).To(Equal(metav1.StatusReasonUnsupportedMediaType), key)
			Expect(s.Message).To(ContainSubstring("application/json"), key)
		})
	})

	It("bounds its body", func() {
		e, name := parentAndChild()
		huge := `{"x":"` + strings.Repeat("x", runtimev1.MaxBodyBytes) + `"}`
		eachWrite(func(key, method, path string, w write) {
			if w.good == "" || w.streamed {
				return
			}
			s := e.refused("alice", method, at(name, path), huge, asJSON)
			Expect(s.Reason).To(Equal(metav1.StatusReasonRequestEntityTooLarge), key)
			Expect(s.Message).To(ContainSubstring("1048576"), key)
		})
	})

	It("is refused or taken by a terminated thread, as it should be", Label("THR-05"), func(ctx SpecContext) {
		e, name := parentAndChild()
		e.definitions.Put("helper")
		Expect(e.client().Thread("ns", name).Terminate(ctx)).To(Succeed())
		eachWrite(func(key, method, path string, w write) {
			if !w.stays {
				s := e.refused("alice", method, at(name, path), w.good, asJSON)
				Expect(s.Reason).To(Equal(metav1.StatusReasonGone), key)
				Expect(s.Details.Causes).To(ConsistOf(HaveField("Type", runtimev1.CauseTerminated)), key)
				return
			}
			if w.held {
				return
			}
			resp, body := e.do(method, at(name, path), body(w), "Content-Type", asJSON)
			if key == "create fork" { // "destroy" came before it
				Expect(body).To(ContainSubstring("has no messages"))
				return
			}
			Expect(resp.StatusCode).To(Or(BeNumerically("<", 300), Equal(http.StatusNotFound)), "%s: %s", key, body)
		})
	})

	It("that only a child may use is refused for a thread without a parent", Label("SUB-05"), func() {
		e, _ := parentAndChild()
		eachWrite(func(key, method, path string, w write) {
			if !w.child {
				return
			}
			s := e.refused("alice", method, at("parent", path), w.good, asJSON)
			Expect(s.Reason).To(Equal(metav1.StatusReasonBadRequest), key)
			Expect(s.Message).To(ContainSubstring("no parent"), key)
		})
	})

	It("of a view needs its right, and says what is wrong with its body", Label("K8S-04"), func() {
		e, _ := parentAndChild()
		const store = "/apis/runtime.skein.dev/v1alpha1/namespaces/ns/kvstores/cache/values/k"
		Expect(e.refused("bob", http.MethodPut, store, `1`, asJSON).Reason).To(Equal(metav1.StatusReasonForbidden))
		Expect(e.refused("bob", http.MethodDelete, store, ``, asJSON).Reason).To(Equal(metav1.StatusReasonForbidden))
		Expect(e.refused("alice", http.MethodPut, store, `{"cut": "off`, asJSON)).To(And(
			HaveField("Reason", metav1.StatusReasonInvalid), HaveField("Message", ContainSubstring("JSON"))))
		Expect(e.refused("alice", http.MethodPut, store, `<a/>`, "text/xml").Reason).To(Equal(metav1.StatusReasonUnsupportedMediaType))
		Expect(e.refused("alice", http.MethodPut, store, `"`+strings.Repeat("x", runtimev1.MaxBodyBytes)+`"`, asJSON).Reason).To(Equal(metav1.StatusReasonRequestEntityTooLarge))
		Expect(e.refused("alice", http.MethodDelete, store, ``, asJSON).Reason).To(Equal(metav1.StatusReasonNotFound))
		Expect(e.refused("bob", http.MethodDelete, "/apis/runtime.skein.dev/v1alpha1/namespaces/ns/retained/x", ``, asJSON).Reason).To(Equal(metav1.StatusReasonForbidden))
		Expect(e.refused("alice", http.MethodDelete, "/apis/runtime.skein.dev/v1alpha1/namespaces/ns/retained/x", ``, asJSON).Reason).To(Equal(metav1.StatusReasonNotFound))
		const again = "/apis/runtime.skein.dev/v1alpha1/namespaces/ns/webhookdeliveries/x/redeliver"
		Expect(e.refused("bob", http.MethodPost, again, `{}`, asJSON).Reason).To(Equal(metav1.StatusReasonForbidden))
		Expect(e.refused("alice", http.MethodPost, again, `{}`, asJSON).Reason).To(Equal(metav1.StatusReasonNotFound))
		const cancel = "/apis/runtime.skein.dev/v1alpha1/namespaces/ns/firings/daily/cancel"
		Expect(e.refused("bob", http.MethodPost, cancel, `{"due":1}`, asJSON).Reason).To(Equal(metav1.StatusReasonForbidden))
		Expect(e.refused("alice", http.MethodPost, cancel, `{"due":"now"}`, asJSON).Reason).To(Equal(metav1.StatusReasonInvalid))

		var ways []string
		for name, v := range (&Server{}).handlers().views() {
			for _, table := range []verbs{v.Collection, v.Across, v.Named} {
				for verb := range table {
					ways = append(ways, verb+" "+string(name))
				}
			}
			for sub, r := range v.Below {
				for _, verb := range r.Verbs() {
					ways = append(ways, verb+" "+string(name)+"/"+sub)
				}
			}
		}
		Expect(slices.DeleteFunc(ways, func(way string) bool { verb, _, _ := strings.Cut(way, " "); return writing[verb] == "" })).To(
			ConsistOf("update kvstores/values", "delete kvstores/values", "delete retained",
				// Those of backups_test.go:
				"create restores", "delete restores", "create restores/rows", "update restores/contents", "create restores/finish", "create restores/effects", "create orphans",
				"create webhookdeliveries/redeliver", "create firings/cancel"),
			"a new one belongs here")
	})

	It("has an action, as every way to read has", Label("THR-05"), func() {
		var routed, decided []string
		for sub, r := range (&Server{}).handlers().routes() {
			for verb := range r.Plain {
				routed = append(routed, router.ActionKey(verb, sub, false))
			}
			for verb := range r.Nested {
				routed = append(routed, router.ActionKey(verb, sub, true))
			}
		}
		for key := range actions {
			decided = append(decided, key)
		}
		Expect(decided).To(ConsistOf(routed), "decide in routeactions.go what a new route does to a thread")
	})

	It("agrees with the table of lifecycle states", Label("THR-05"), func() {
		eachWrite(func(key, _, _ string, w write) {
			Expect(life.Allows(life.Terminated, actions[key])).To(Equal(w.stays), key)
		})
	})

	It("is refused by retained data, which can be read", Label("THR-05", "THR-09"), func(ctx SpecContext) {
		e := newEnv()
		st, _ := e.thread("kept")
		Expect(st.Apply(ctx, &store.Retain{})).To(Succeed())
		Expect(e.kube.Delete(ctx, &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "kept"}})).To(Succeed())
		eachWrite(func(key, method, path string, w write) {
			if w.held {
				return
			}
			s := e.refused("alice", method, at(st.ID(), path), w.good, asJSON)
			Expect(s.Reason).To(Equal(metav1.StatusReasonConflict), key)
			Expect(s.Message).To(ContainSubstring("spec.threadID"), key)
		})
		resp, _ := e.do(http.MethodGet, at(st.ID(), "/messages"), nil)
		Expect(resp.StatusCode).To(Equal(http.StatusOK))
	})

	It("is known to the walk", func() {
		var known []string
		for key := range writes {
			known = append(known, key)
		}
		Expect(known).To(ConsistOf(served()), "add to writes how it is called, so that its errors are checked")
	})
})

func body(w write) io.Reader { return bytes.NewReader([]byte(w.good)) }
