package audited_test

import (
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"

	"github.com/skein-dev/skein/internal/apiserver/audited"
)

func TestAudited(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Requests that come in on other ways")
}

// kept is an audit backend that keeps events.
type kept struct {
	audit.Backend
	mu     sync.Mutex
	events []*auditinternal.Event
}

func (k *kept) ProcessEvents(events ...*auditinternal.Event) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.events = append(k.events, events...)
	return true
}

var _ = Describe("An entry", Label("K8S-12"), func() {
	entry := func(code int) *audited.Entry {
		return &audited.Entry{
			ID: "sess_1", Received: time.Now(), Who: "skein:gateway:ns:chat", User: "ada", Verb: "create", Namespace: "ns", Thread: "chat-1", Subresource: "queue",
			Path: "/ns/chat/v1/message", From: "192.0.2.1", UserAgent: "curl", Code: code,
		}
	}

	It("says who did what to which thread", func() {
		log := &kept{}
		audited.New(log, policy.NewFakePolicyRuleEvaluator(auditinternal.LevelRequestResponse, nil)).Record(entry(200))
		Expect(log.events).To(HaveLen(1))
		e := log.events[0]
		Expect(e.Level).To(Equal(auditinternal.LevelMetadata), "bodies are never recorded")
		Expect(e.User.Username).To(Equal("skein:gateway:ns:chat"))
		Expect(e.User.Extra[audited.ExtraUser]).To(ConsistOf("ada"))
		Expect([]string{e.ObjectRef.Namespace, e.ObjectRef.Name, e.ObjectRef.Resource, e.ObjectRef.Subresource, e.Verb}).To(Equal([]string{"ns", "chat-1", "threads", "queue", "create"}))
		Expect(e.ResponseStatus.Code).To(Equal(int32(200)))
		Expect(e.SourceIPs).To(ConsistOf("192.0.2.1"))
	})

	It("is recorded as the policy says", func() {
		log := &kept{}
		for _, p := range []*auditinternal.Policy{
			{Rules: []auditinternal.PolicyRule{{Level: auditinternal.LevelNone, UserGroups: []string{audited.Group}}, {Level: auditinternal.LevelMetadata}}},
			{Rules: []auditinternal.PolicyRule{{Level: auditinternal.LevelMetadata, OmitStages: []auditinternal.Stage{auditinternal.StageResponseComplete}}}},
			{Rules: []auditinternal.PolicyRule{{Level: auditinternal.LevelMetadata, Users: []string{"other"}}}},
		} {
			audited.New(log, policy.NewPolicyRuleEvaluator(p)).Record(entry(200))
		}
		Expect(log.events).To(BeEmpty())
		p := &auditinternal.Policy{Rules: []auditinternal.PolicyRule{{Level: auditinternal.LevelMetadata, Verbs: []string{"create"}, Resources: []auditinternal.GroupResources{{Group: "runtime.skein.dev", Resources: []string{"threads/queue"}}}}}}
		audited.New(log, policy.NewPolicyRuleEvaluator(p)).Record(entry(200))
		Expect(log.events).To(HaveLen(1))
		audited.New(nil, nil).Record(entry(200)) // there is no audit
	})

	It("of a refusal is left out and counted when there are too many of them, and no others are", func() {
		log := &kept{}
		a := audited.New(log, policy.NewFakePolicyRuleEvaluator(auditinternal.LevelMetadata, nil))
		const many = 5000
		for range many {
			a.Record(entry(429))
		}
		Expect(len(log.events)).To(And(BeNumerically(">=", 100), BeNumerically("<", many/2)))
		before := len(log.events)
		for range 200 {
			a.Record(entry(200))
		}
		Expect(log.events).To(HaveLen(before + 200))
		Eventually(func() string {
			a.Record(entry(404))
			return log.events[len(log.events)-1].Annotations[audited.AnnotationLeftOut]
		}).ShouldNot(BeEmpty())
	})
})
