package conformance

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// agentuityRuntime is a server of Agentuity's runtime that has the key of a gateway.
type agentuityRuntime struct{ origin string }

func startAgentuity(ctx context.Context, key string) agentuityRuntime {
	GinkgoHelper()
	dir := npmPackages(ctx, "agentuity")
	programs, err := filepath.Glob(filepath.Join(dir, "node_modules", "@oven", "bun-*", "bin", "bun"))
	Expect(err).NotTo(HaveOccurred())
	Expect(programs).To(HaveLen(1), "npm installs the Bun of this machine")
	run := exec.CommandContext(ctx, programs[0], "-e", clientProgram("agentuity.mjs"))
	run.Dir, run.Env = dir, append(os.Environ(), "AGENTUITY_SDK_KEY="+key)
	heard := startProgram(run).of(ctx, 1, func(l clientLine) bool { return l.Heard != "" })
	return agentuityRuntime{heard[0].Heard}
}

// ask makes a request to the runtime, and returns the id that it means there.
func (a agentuityRuntime) ask(ctx context.Context, c *http.Client, header ...string) reply {
	GinkgoHelper()
	r := request(ctx, c, http.MethodGet, a.origin, "", header...)
	Expect(r.status).To(Equal(http.StatusOK), r.body)
	Expect(r.body).To(MatchRegexp(`^thrd_[0-9a-zA-Z]{27,59}$`))
	return r
}

// cookieOf returns the cookie of an answer as a browser sends it back.
func cookieOf(r reply) string {
	GinkgoHelper()
	cookies := (&http.Response{Header: r.header}).Cookies()
	Expect(cookies).To(HaveLen(1))
	return cookies[0].Name + "=" + cookies[0].Value
}

var _ = Describe("Ids of Agentuity's runtime", Label("IDS-02", "IDS-03", "IDS-04"), func() {
	It("reach their conversation here, and those of a gateway are the same thread there, as header and as cookie, twenty at once", func(ctx SpecContext) {
		ns, _ := openDoor(ctx, []skeinv1.ScriptStep{harness.Echo()}, func(s *skeinv1.ThreadGatewaySpec) { s.Strict = true })
		runtime := startAgentuity(ctx, firstKey)
		signedFor := func(id string) string { return signedBy(firstKey, id) }
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				defer GinkgoRecover()
				there := runtime.ask(ctx, http.DefaultClient)
				Expect(there.id()).To(Equal(signedFor(there.body)))
				Expect(tell(ctx, http.DefaultClient, ns, "by the header", "x-thread-id", there.id()).id()).To(Equal(there.id()))
				Expect(tell(ctx, http.DefaultClient, ns, "by the cookie", "Cookie", cookieOf(there)).id()).To(Equal(there.id()))
				r := knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "", "x-thread-id", there.id())
				Expect(r.body).To(And(ContainSubstring("echo: by the header"), ContainSubstring("echo: by the cookie")))

				here := tell(ctx, http.DefaultClient, ns, "hello")
				for _, header := range [][]string{{"x-thread-id", here.id()}, {"Cookie", cookieOf(here)}} {
					Expect(signedFor(runtime.ask(ctx, http.DefaultClient, header...).body)).To(Equal(here.id()), header[0])
				}
				Expect(cookieOf(runtime.ask(ctx, http.DefaultClient, "x-thread-id", here.id()))).To(Equal(cookieOf(here)), "both set the same cookie")
			})
		}
		all.Wait()
		Expect(madeThreads(ctx, ns)).To(HaveLen(40))

		By("a browser that goes from one to the other and back")
		ada := browser()
		first := tell(ctx, ada, ns, "begun here")
		there := runtime.ask(ctx, ada) // cookies do not count by port
		Expect(there.id()).To(Equal(first.id()))
		Expect(tell(ctx, ada, ns, "gone on with").id()).To(Equal(first.id()))
	}, SpecTimeout(5*time.Minute))

	It("that are forged, cut, doubled, mixed or escaped twice are refused here, and mean another thread there", func(ctx SpecContext) {
		ns, _ := openDoor(ctx, []skeinv1.ScriptStep{harness.Echo()}, func(s *skeinv1.ThreadGatewaySpec) { s.Strict = true })
		runtime, other := startAgentuity(ctx, firstKey), startAgentuity(ctx, secondKey)
		good := runtime.ask(ctx, http.DefaultClient)
		tell(ctx, http.DefaultClient, ns, "a secret of ada", "x-thread-id", good.id())
		id, signature, _ := strings.Cut(good.id(), ";")
		foreign := other.ask(ctx, http.DefaultClient)
		for name, values := range map[string]struct {
			header, cookie string // as they are before the cookie is escaped
		}{
			"of another key":                  {signedBy(secondKey, id), id + "." + strings.TrimPrefix(signedBy(secondKey, id), id+";")},
			"of the runtime of another key":   {foreign.id(), strings.Replace(foreign.id(), ";", ".", 1)},
			"with the runtime's default":      {signedBy("agentuity", id), strings.Replace(signedBy("agentuity", id), ";", ".", 1)},
			"cut":                             {good.id()[:len(good.id())-1], id + "." + signature[:len(signature)-1]},
			"without a signature":             {id, id},
			"doubled":                         {good.id() + ";" + good.id(), id + "." + signature + "." + id + "." + signature},
			"signed twice":                    {good.id() + ";" + signature, id + "." + signature + "." + signature},
			"with both separators":            {id + ";." + signature, id + ".;" + signature},
			"with the separator of the other": {id + "." + signature, id + "." + signature + ";" + signature},
			"escaped once more":               {url.QueryEscape(good.id()), url.QueryEscape(id + "." + signature)},
		} {
			for _, header := range [][]string{{"x-thread-id", values.header}, {"Cookie", "atid=" + url.QueryEscape(values.cookie)}} {
				r := knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "", header...)
				Expect(r).To(refusedWith(http.StatusUnauthorized, And(ContainSubstring(`"reason":"Unauthorized"`), Not(ContainSubstring(id)))), "%s: %s", name, header[0])
				Expect(r.id()).NotTo(HavePrefix(id+";"), name)
				Expect(runtime.ask(ctx, http.DefaultClient, header...).body).NotTo(Equal(id), "%s: %s", name, header[0])
			}
		}
		Expect(tell(ctx, http.DefaultClient, ns, "still me", "Cookie", cookieOf(good)).id()).To(Equal(good.id()))
	}, SpecTimeout(5*time.Minute))
})
