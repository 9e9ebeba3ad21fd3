package conformance

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// outsideLine is a line of the audit log about a request of an end user.
type outsideLine struct {
	AuditID, Verb, RequestURI string
	SourceIPs                 []string
	User                      struct {
		Username string
		Extra    map[string][]string
	}
	ObjectRef      struct{ Resource, Subresource, Namespace, Name string }
	ResponseStatus struct{ Code int }
}

var _ = Describe("The audit of the gateway", Label("K8S-12"), func() {
	It("records who read or changed which thread, and nothing of what was said", func(ctx SpecContext) {
		const canary = "canary-77b1e4"
		ns, _ := openDoor(ctx, []skeinv1.ScriptStep{harness.Echo()}, func(s *skeinv1.ThreadGatewaySpec) {
			s.User = &skeinv1.GatewayUser{Header: "X-User-Id", HashKey: gatewayKey("users")}
		})
		first := tell(ctx, http.DefaultClient, ns, canary, "X-User-Id", "ada")
		second := knock(ctx, http.DefaultClient, "POST", ns, "chat/v1/chat/completions", chatBody(canary), "X-User-Id", "ada", "X-Forwarded-For", "198.51.100.7")
		Expect(second.status).To(Equal(200), second.body)
		read := knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages?q="+canary, "", "X-User-Id", "ada")
		refused := knock(ctx, http.DefaultClient, "GET", ns, "chat/v1/messages", "")
		Expect(refused.status).To(Equal(401))
		made := madeThreads(ctx, ns)
		Expect(made).To(HaveLen(1))
		lines := func() map[string]outsideLine {
			data, err := os.ReadFile(auditLog(filepath.Dir(manager.Dir)))
			Expect(err).NotTo(HaveOccurred())
			Expect(string(data)).NotTo(ContainSubstring(canary))
			byID := map[string]outsideLine{}
			for _, line := range bytes.Split(data, []byte("\n")) {
				var one outsideLine
				if json.Unmarshal(line, &one) == nil && one.ObjectRef.Namespace == ns {
					byID[one.AuditID] = one
				}
			}
			return byID
		}
		about := func(verb, subresource, path, from string) OmegaMatcher {
			return And(
				HaveField("Verb", verb), HaveField("RequestURI", "/"+ns+"/chat/"+path), HaveField("SourceIPs", []string{from}), HaveField("ResponseStatus.Code", 200),
				HaveField("User.Username", "skein:gateway:"+ns+":chat"), HaveField("User.Extra", HaveKeyWithValue("skein.dev/end-user", []string{"ada"})),
				HaveField("ObjectRef", And(HaveField("Resource", "threads"), HaveField("Subresource", subresource), HaveField("Name", made[0].Name))))
		}
		Eventually(ctx, lines).Should(And(
			HaveKeyWithValue(first.session(), about("create", "queue", "v1/message", "127.0.0.1")),
			HaveKeyWithValue(second.session(), about("create", "queue", "v1/chat/completions", "198.51.100.7")),
			HaveKeyWithValue(read.session(), about("get", "messages", "v1/messages", "127.0.0.1")),
			HaveKeyWithValue(refused.session(), And(HaveField("ResponseStatus.Code", 401), HaveField("ObjectRef.Name", ""))),
		))
	})
})
