package builtin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/tool"
	"github.com/skein-dev/skein/internal/tool/builtin"
)

// registry is a registry of children, oldest first.
type registry struct {
	tool.Children
	entries []skeinv1.ChildStatus
}

func (*registry) Kinds(context.Context) ([]skeinv1.AgentSubagent, error) {
	return []skeinv1.AgentSubagent{{Name: "helper"}}, nil
}

func (*registry) Living(context.Context) (map[string]int, error) { return nil, nil }

func (*registry) Resumable(context.Context) ([]skeinv1.ChildStatus, error) { return nil, nil }

func (r *registry) List(context.Context) ([]skeinv1.ChildStatus, error) { return r.entries, nil }

var _ = Describe("The list of subagents", Label("SUB-03", "TOL-02"), func() {
	var r *registry
	BeforeEach(func() { r = &registry{} })
	list := func(arguments string) string {
		GinkgoHelper()
		tools, err := builtin.Family(context.Background(), skeinv1.BuiltinSubagents, &tool.Host{Children: r})
		Expect(err).NotTo(HaveOccurred())
		set, err := tool.NewSet(tools...)
		Expect(err).NotTo(HaveOccurred())
		res := set.Call(context.Background(), tool.Call{ID: "call_1", Name: "subagent_list", Arguments: json.RawMessage(arguments)})
		Expect(res.Status).To(Equal(tool.StatusSuccess), res.Content)
		return res.Content
	}
	type found struct {
		Subagents []struct{ Reference, Title string }
		HasMore   bool
	}
	read := func(arguments string) (references []string, f found) {
		GinkgoHelper()
		Expect(json.Unmarshal([]byte(list(arguments)), &f)).To(Succeed())
		for _, s := range f.Subagents {
			references = append(references, s.Reference)
		}
		return references, f
	}

	It("says what each is and does, those that have not finished first, then the newest", func() {
		Expect(list(`{}`)).To(MatchJSON(`{"subagents":[],"hasMore":false}`))
		r.entries = []skeinv1.ChildStatus{
			{Reference: "a", Name: "helper", Status: "running", Title: "Sum", Description: "adds", Resumable: true, ThreadName: "t", ThreadID: "id", CreatedAt: 1},
			{Reference: "b", Name: "helper", Status: "completed", Blocking: true}, {Reference: "c", Name: "helper", Status: "failed"},
			{Reference: "d", Name: "helper", Status: "half done"}, {Reference: "e", Name: "helper", Status: "terminated"}, {Reference: "f", Name: "helper", Status: "pending"},
		}
		references, _ := read(`{}`)
		Expect(references).To(Equal([]string{"f", "d", "a", "e", "c", "b"}))
		Expect(list(`{"status":"completed"}`)).To(MatchJSON(`{"subagents":[{"reference":"b","name":"helper","status":"completed","resumable":false,"blocking":true}],"hasMore":false}`))
		Expect(list(`{"status":"running"}`)).To(MatchJSON(`{"subagents":[{"reference":"d","name":"helper","status":"half done","resumable":false,"blocking":false},
			{"reference":"a","name":"helper","title":"Sum","description":"adds","status":"running","resumable":true,"blocking":false}],"hasMore":false}`))
	})

	It("is bounded in number and bytes, and says that there are more", func() {
		for i := range 51 {
			r.entries = append(r.entries, skeinv1.ChildStatus{Reference: fmt.Sprint("r", i), Name: "helper", Status: "completed"})
		}
		r.entries[0].Status = "running"
		references, f := read(`{}`)
		Expect(references).To(HaveLen(50))
		Expect(references[:2]).To(Equal([]string{"r0", "r50"}))
		Expect(references[49]).To(Equal("r2"))
		Expect(f.HasMore).To(BeTrue())
		_, f = read(`{"status":"completed"}`)
		Expect(f).To(And(HaveField("HasMore", false), HaveField("Subagents", HaveLen(50))), "as many as there may be")

		for i := range r.entries {
			r.entries[i].Title, r.entries[i].Description = strings.Repeat("ä", 250), strings.Repeat("d", 5000)
		}
		all := list(`{}`)
		Expect(len(all)).To(BeNumerically("<", 17<<10))
		references, f = read(`{}`)
		Expect(len(references)).To(And(BeNumerically(">", 20), BeNumerically("<", 50)))
		Expect(f.HasMore).To(BeTrue())
		Expect(f.Subagents[0].Title).To(Equal(strings.Repeat("ä", 98) + "…"))
	})
})
