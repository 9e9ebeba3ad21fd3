package apiserver

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// oddKeys are keys that URLs escape, or that what handles URLs on the way would change.
var oddKeys = []string{
	".", "..", "/", "//", "/a", "a/", "a//b", "a/./b", "a/../b", "../a", "../../../x", "...", "%", "%2e%2e", "%2F", "a%2Fb", "%zz", "a+b", "a b", " ", "?", "a?b=c", "#", "&k=v",
	"a;b", "a\\b", "\n", "é", "日本", "😀", "key", "values", strings.Repeat("/", 512),
}

func must[T any](v T, err error) T {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	return v
}

var _ = Describe("Any key that is accepted", Label("KVS-01", "STA-02", "STA-07"), func() {
	// is reads a value that must be there.
	is := func(value json.RawMessage, key string) {
		GinkgoHelper()
		Expect(value).To(MatchJSON(must(json.Marshal(key))), "%q", key)
	}

	It("is read and removed alone, as part of a thread's key-values", func(ctx SpecContext) {
		_, t := newEnv().thread("hello")
		for _, key := range oddKeys {
			Expect(t.SetValue(ctx, key, key)).To(Succeed(), "%q", key)
		}
		for _, key := range oddKeys {
			is(must(t.Value(ctx, key)), key)
		}
		Expect(must(t.Keys(ctx, runtimeclient.KeyOptions{})).Keys).To(ConsistOf(oddKeys))
		for i, key := range oddKeys {
			Expect(t.SetValue(ctx, key, nil)).To(Succeed(), "%q", key)
			Expect(must(t.Keys(ctx, runtimeclient.KeyOptions{})).Keys).To(ConsistOf(oddKeys[i+1:]), "%q", key)
		}
	})

	It("is read and removed alone, as part of a thread's state", func(ctx SpecContext) {
		_, t := newEnv().thread("hello")
		for _, key := range oddKeys {
			Expect(t.SetState(ctx, key, key)).To(Succeed(), "%q", key)
		}
		for i, key := range oddKeys {
			value, ok, err := t.StateValue(ctx, key)
			Expect(err).NotTo(HaveOccurred())
			Expect(ok).To(BeTrue(), "%q", key)
			is(value, key)
			Expect(t.DeleteState(ctx, key)).To(Succeed(), "%q", key)
			Expect(t.State(ctx, runtimeclient.Page{})).To(HaveField("Total", int64(len(oddKeys)-i-1)), "%q", key)
		}
	})

	It("is read and removed alone, as part of a store of the namespace", func(ctx SpecContext) {
		kv := newEnv().client().KV("ns", "rates")
		for _, key := range oddKeys {
			Expect(kv.Set(ctx, key, key, 0)).To(Succeed(), "%q", key)
		}
		for i, key := range oddKeys {
			is(must(kv.Get(ctx, key)).Data, key)
			Expect(kv.Delete(ctx, key)).To(BeTrue(), "%q", key)
			Expect(must(kv.Keys(ctx, runtimeclient.KeyOptions{})).Keys).To(ConsistOf(oddKeys[i+1:]), "%q", key)
		}
	})

	It("is part of a request once, and not empty", func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		for _, sub := range []string{"/kv", "/state"} {
			key := url.Values{runtimev1.KeyParameter: {"a//b"}}.Encode()
			put, answer := e.do("PUT", at("hello", sub+"?"+key), strings.NewReader(`1`))
			Expect(put.StatusCode).To(Equal(http.StatusOK), answer)
			Expect(e.status("GET", at("hello", sub+"/a?"+key), "")).To(And(HaveField("Code", BeEquivalentTo(http.StatusBadRequest)), HaveField("Message", ContainSubstring("more than one key"))))
			Expect(e.status("GET", at("hello", sub+"?key=a&key=b"), "").Code).To(BeEquivalentTo(http.StatusBadRequest))
			for _, method := range []string{"GET", "PUT", "DELETE"} {
				Expect(e.status(method, at("hello", sub+"?key="), `1`).Code).To(BeEquivalentTo(http.StatusUnprocessableEntity), method)
			}
		}
		Expect(t.Value(ctx, "")).Error().To(MatchError(runtimeclient.ErrInvalid))
		_, _, err := t.StateValue(ctx, "")
		Expect(err).To(MatchError(runtimeclient.ErrInvalid))
		Expect(t.SetState(ctx, "", 1)).To(MatchError(runtimeclient.ErrInvalid))
	})
})

var _ = Describe("Any path of a file that is accepted", Label("FIL-04"), func() {
	It("is read and removed alone", func(ctx SpecContext) {
		_, t := newEnv().thread("hello")
		read := func(ctx context.Context, path string) string {
			GinkgoHelper()
			r := must(t.ReadFile(ctx, path))
			Expect(r).NotTo(BeNil(), "%q", path)
			defer r.Close()
			return string(must(io.ReadAll(r)))
		}
		files := []string{"/...", "/%", "/%2e%2e", "/%2F", "/a%2Fb", "/%zz", "/a+b", "/a b", "/ ", "/?", "/a?b=c", "/#", "/&k=v", "/a;b", "/a\\b", "/\n", "/é", "/日本/😀", "/key"}
		for _, path := range files {
			Expect(t.WriteFile(ctx, path, strings.NewReader(path), runtimeclient.WriteFileOptions{})).To(HaveField("Path", path))
		}
		for i, path := range files {
			Expect(read(ctx, path)).To(Equal(path))
			Expect(t.Unlink(ctx, path)).To(Succeed(), "%q", path)
			Expect(must(t.FileStats(ctx)).FileCount).To(BeEquivalentTo(len(files)-i-1), "%q", path)
		}
		Expect(t.WriteFile(ctx, "//a/./b/", strings.NewReader("x"), runtimeclient.WriteFileOptions{})).To(HaveField("Path", "/a/b"))
		Expect(read(ctx, "/a//b")).To(Equal("x"))
		for _, path := range []string{"..", "/a/../b", "/", "", "."} {
			Expect(t.WriteFile(ctx, path, strings.NewReader("x"), runtimeclient.WriteFileOptions{})).Error().To(MatchError(runtimeclient.ErrInvalid), "%q", path)
		}
	})
})

var _ = Describe("The name of a variable", Label("ENV-01"), func() {
	It("is one that its URL has unchanged, or is refused", func(ctx SpecContext) {
		_, t := newEnv().thread("hello")
		for _, name := range oddKeys {
			if name != "key" && name != "values" {
				Expect(t.SetEnv(ctx, name, "x", "text")).NotTo(Succeed(), "%q", name)
			}
		}
		Expect(must(t.ListEnv(ctx, runtimeclient.Page{})).Variables).To(BeEmpty())
	})
})
