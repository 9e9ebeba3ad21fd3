package ids_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/gateway/ids"
)

func TestIDs(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Ids of end users")
}

var (
	oldKey = []byte("an old key of 32 bytes, or about")
	newKey = []byte("a new key of 32 bytes, or nearly")
)

func ring(keys ...[]byte) *ids.Keyring {
	GinkgoHelper()
	r, err := ids.NewKeyring(keys...)
	Expect(err).NotTo(HaveOccurred())
	return r
}

const someID = "thrd_0123456789abcdefABCDEF0123456789"

var _ = Describe("Ids", Label("IDS-02"), func() {
	DescribeTable("are checked", func(id, problem string) {
		err := ids.Check(id)
		if problem == "" {
			Expect(err).NotTo(HaveOccurred())
			return
		}
		Expect(err).To(MatchError(ContainSubstring(problem)))
	},
		Entry("the shortest", "thrd_"+strings.Repeat("Z", 27), ""),
		Entry("the longest", "thrd_"+strings.Repeat("a", 59), ""),
		Entry("one too short", "thrd_"+strings.Repeat("9", 26), "32 to 64 characters"),
		Entry("one too long", "thrd_"+strings.Repeat("a", 60), "32 to 64 characters"),
		Entry("very long", "thrd_"+strings.Repeat("a", 1<<20), "32 to 64 characters"),
		Entry("another prefix", "thread_"+strings.Repeat("a", 32), "begins with thrd_"),
		Entry("the prefix in capitals", "THRD_"+strings.Repeat("a", 32), "begins with thrd_"),
		Entry("nothing", "", "begins with thrd_"),
		Entry("dashes", "thrd_abc-def-abc123def456789012345", "letters a to z"),
		Entry("letters that only look like ours", "thrd_"+strings.Repeat("а", 16), "letters a to z"),
		Entry("a zero byte", "thrd_"+strings.Repeat("a", 30)+"\x00", "letters a to z"),
		Entry("a line break at the end", "thrd_"+strings.Repeat("a", 30)+"\n", "letters a to z"),
	)

	It("are new each time, and valid", func() {
		seen := map[string]bool{}
		for range 1000 {
			id := ids.New()
			Expect(ids.Check(id)).To(Succeed())
			Expect(seen).NotTo(HaveKey(id))
			seen[id] = true
		}
	})

	It("of a user are the same each time, and depend on the key", Label("IDS-06"), func() {
		id := ids.OfUser(oldKey, "ada@example.com")
		Expect(ids.Check(id)).To(Succeed())
		Expect(ids.OfUser(oldKey, "ada@example.com")).To(Equal(id))
		Expect(ids.OfUser(oldKey, "bob@example.com")).NotTo(Equal(id))
		Expect(ids.OfUser(newKey, "ada@example.com")).NotTo(Equal(id))
	})

	It("of sessions are unique", Label("IDS-05"), func() {
		Expect(ids.NewSession()).To(MatchRegexp(`^sess_[0-9a-f]{32}$`))
		Expect(ids.NewSession()).NotTo(Equal(ids.NewSession()))
	})
})

var _ = Describe("Signatures", Label("IDS-03", "IDS-04"), func() {
	It("are the base64 of the HMAC-SHA256 of the id", func() {
		mac := hmac.New(sha256.New, newKey)
		mac.Write([]byte(someID))
		Expect(ring(newKey).Sign(someID)).To(Equal(someID + ";" + base64.StdEncoding.EncodeToString(mac.Sum(nil))))
	})

	It("of an old key verify, and the first key signs", func() {
		signed := ring(oldKey).Sign(someID)
		Expect(ring(newKey, oldKey).Verify(signed)).To(Equal(someID))
		Expect(ring(newKey, oldKey).Sign(someID)).To(Equal(ring(newKey).Sign(someID)))
		_, err := ring(newKey).Verify(signed)
		Expect(err).To(MatchError(ContainSubstring("no longer in use")))
	})

	DescribeTable("do not verify when anything is changed", func(change func(signed string) string) {
		id, err := ring(newKey).Verify(change(ring(newKey).Sign(someID)))
		Expect(err).To(HaveOccurred())
		Expect(id).To(BeEmpty())
	},
		Entry("no signature", func(string) string { return someID }),
		Entry("an empty signature", func(string) string { return someID + ";" }),
		Entry("another id", func(s string) string { return strings.Replace(s, "0123", "1123", 1) }),
		Entry("another signature", func(s string) string { return strings.Replace(s, ";", ";A", 1) }),
		Entry("cut", func(s string) string { return s[:len(s)-1] }),
		Entry("longer", func(s string) string { return s + "=" }),
		Entry("doubled", func(s string) string { return s + ";" + s }),
		Entry("a second signature", func(s string) string { return s + s[strings.Index(s, ";"):] }),
		Entry("another spelling of the same bytes", func(s string) string {
			last := s[len(s)-2]
			return s[:len(s)-2] + string(last+1) + "=" // the lowest bits of the last character do not count in base64
		}),
		Entry("base64 for URLs", func(s string) string { return strings.NewReplacer("+", "-", "/", "_", "=", "").Replace(s) }),
		Entry("spaces around", func(s string) string { return " " + s + " " }),
		Entry("of another key", func(string) string { return ring(oldKey).Sign(someID) }),
		Entry("of a bad id", func(string) string { return ring(newKey).Sign("thrd_../../other/thread/1234567890") }),
		Entry("unicode", func(s string) string { return strings.Replace(s, "thrd", "thrđ", 1) }),
		Entry("10 MB", func(s string) string { return s + strings.Repeat("A", 10<<20) }),
		Entry("nothing", func(string) string { return "" }),
		Entry("a signature of nothing", func(string) string { return ring(newKey).Sign("") }),
	)

	It("need keys that are long enough", func() {
		_, err := ids.NewKeyring()
		Expect(err).To(HaveOccurred())
		_, err = ids.NewKeyring(newKey, []byte("agentuity"))
		Expect(err).To(MatchError(ContainSubstring("key 2 has 9 bytes: use 16 or more")))
	})
})

var _ = Describe("A request", Label("IDS-03", "IDS-04"), func() {
	const otherID = "thrd_ffffffffffffffffffffffffffffffff"
	request := func(header string, cookies ...string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if header != "" {
			r.Header.Set("x-thread-id", header)
		}
		for _, c := range cookies {
			r.Header.Add("Cookie", "atid="+c)
		}
		return r
	}
	signed := func(id string) string { return ring(newKey).Sign(id) }
	forged := func(id string) string { return ring(oldKey).Sign(id) }
	escaped := func(s string) string { return url.QueryEscape(s) }
	of := func(strict bool, r *http.Request) ids.Found {
		return (&ids.Source{Keys: ring(newKey), Strict: strict}).Of(r)
	}
	isNew := func(f ids.Found) {
		GinkgoHelper()
		Expect(f.New).To(BeTrue())
		Expect(f.ID).NotTo(BeElementOf(someID, otherID))
		Expect(ids.Check(f.ID)).To(Succeed())
	}

	It("means the id in the header, else the one in the cookie, else a new one", func() {
		for _, strict := range []bool{false, true} {
			Expect(of(strict, request(signed(someID)))).To(Equal(ids.Found{ID: someID}))
			Expect(of(strict, request("", escaped(signed(someID))))).To(Equal(ids.Found{ID: someID}))
			Expect(of(strict, request(signed(someID), escaped(signed(otherID))))).To(Equal(ids.Found{ID: someID}), "they disagree")
			f := of(strict, request(""))
			isNew(f)
			Expect(f.Refused).NotTo(HaveOccurred())
		}
	})

	It("with an id that does not verify falls through, and is refused in strict mode", func() {
		for _, r := range []*http.Request{
			request(someID), request(forged(someID)), request("", escaped(forged(someID))), request("", someID), request("", "%zz"),
			request("", escaped(signed(someID)), escaped(signed(otherID))), request("", strings.Repeat("A", 10<<20)), request("", escaped(signed(someID))+"%00"),
		} {
			f := of(false, r)
			isNew(f)
			Expect(f.Refused).NotTo(HaveOccurred())
			f = of(true, r)
			isNew(f)
			Expect(f.Refused).To(HaveOccurred())
			Expect(f.Refused.Error()).NotTo(ContainSubstring(someID))
		}
		Expect(of(false, request(forged(otherID), escaped(signed(someID))))).To(Equal(ids.Found{ID: someID}), "the next source counts")
		Expect(of(true, request(forged(otherID), escaped(signed(someID)))).Refused).To(HaveOccurred())
	})

	It("with two headers has none", func() {
		r := request(signed(someID))
		r.Header.Add("x-thread-id", signed(otherID))
		isNew(of(false, r))
		Expect(of(true, r).Refused).To(MatchError(ContainSubstring("several thread ids")))
	})

	It("takes a cookie twice when it is the same one", func() {
		Expect(of(true, request("", escaped(signed(someID)), escaped(signed(someID))))).To(Equal(ids.Found{ID: someID}))
	})

	dotted := func(id string) string { return strings.Replace(signed(id), ";", ".", 1) }

	It("takes a cookie that is signed as web frameworks do, or as the header", func() {
		Expect(of(true, request("", escaped(dotted(someID))))).To(Equal(ids.Found{ID: someID}))
		Expect(of(true, request("", escaped(signed(someID))))).To(Equal(ids.Found{ID: someID}))
	})

	DescribeTable("with an id in an unknown form gets a new one, or is refused in strict mode", func(r func() *http.Request) {
		isNew(of(false, r()))
		Expect(of(true, r()).Refused).To(HaveOccurred())
	},
		Entry("a header with a point", func() *http.Request { return request(dotted(someID)) }),
		Entry("a header that is escaped", func() *http.Request { return request(escaped(signed(someID))) }),
		Entry("a cookie that is escaped twice", func() *http.Request { return request("", escaped(escaped(dotted(someID)))) }),
		Entry("a cookie with both separators", func() *http.Request { return request("", escaped(strings.Replace(signed(someID), ";", ";.", 1))) }),
		Entry("a cookie with them the other way round", func() *http.Request { return request("", escaped(strings.Replace(signed(someID), ";", ".;", 1))) }),
		Entry("a cookie with a second signature after the other separator", func() *http.Request {
			_, signature, _ := strings.Cut(signed(someID), ";")
			return request("", escaped(dotted(someID)+";"+signature))
		}),
		Entry("a cookie that is doubled", func() *http.Request { return request("", escaped(dotted(someID)+"."+dotted(someID))) }),
		Entry("a cookie that is cut", func() *http.Request { return request("", escaped(dotted(someID)[:len(dotted(someID))-1])) }),
		Entry("a cookie that is forged", func() *http.Request { return request("", escaped(strings.Replace(forged(someID), ";", ".", 1))) }),
		Entry("a cookie without a separator", func() *http.Request { return request("", escaped(strings.Replace(signed(someID), ";", "", 1))) }),
	)

	It("is answered with header and cookie", func() {
		for _, secure := range []bool{false, true} {
			h := http.Header{}
			source := &ids.Source{Keys: ring(newKey)}
			source.Set(h, someID, secure)
			Expect(h.Get("x-thread-id")).To(Equal(signed(someID)))
			got := (&http.Response{Header: h}).Cookies()
			Expect(got).To(HaveLen(1))
			c := got[0]
			Expect([]any{c.Name, c.HttpOnly, c.SameSite, c.Path, c.Secure, c.MaxAge, c.Domain}).To(Equal([]any{"atid", true, http.SameSiteLaxMode, "/", secure, 7 * 24 * 60 * 60, ""}))
			Expect(url.QueryUnescape(c.Value)).To(Equal(dotted(someID)), "as frameworks sign cookies")
			r := request("")
			r.AddCookie(c)
			Expect(source.Of(r)).To(Equal(ids.Found{ID: someID}))
		}
	})
})

// FuzzVerify looks for a text that verifies without a valid signature.
func FuzzVerify(f *testing.F) {
	r, err := ids.NewKeyring(newKey, oldKey)
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{"", ";", someID, r.Sign(someID), r.Sign(someID) + ";", r.Sign("thrd_")} {
		f.Add(s)
	}
	old, _ := ids.NewKeyring(oldKey)
	f.Add(old.Sign(someID))
	f.Fuzz(func(t *testing.T, s string) {
		id, err := r.Verify(s)
		switch {
		case err != nil && id != "":
			t.Fatalf("%q: an id beside an error", s)
		case err == nil && ids.Check(id) != nil:
			t.Fatalf("%q verifies as the bad id %q", s, id)
		case err == nil && s != r.Sign(id) && s != old.Sign(id):
			t.Fatalf("%q verifies and is not what was signed", s)
		}
	})
}
