package main

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// mapped is a thread as the runtime API shows it to a map.
type mapped struct {
	record   runtimev1.ThreadRecord
	related  []runtimev1.Relationship
	children []runtimev1.Child
}

func (t mapped) Get(context.Context) (*runtimev1.ThreadRecord, error) {
	if t.record.ThreadID == "" {
		return nil, fmt.Errorf("deleted: %w", runtimeclient.ErrNotFound)
	}
	return &t.record, nil
}

func (t mapped) Relationships(_ context.Context, p runtimeclient.Page) (*runtimev1.RelationshipList, error) {
	one := t.related[min(p.Offset, len(t.related)):min(p.Offset+1, len(t.related))] // pages of one
	return &runtimev1.RelationshipList{Relationships: one, HasMore: p.Offset+1 < len(t.related)}, nil
}

func (t mapped) Children(context.Context, runtimeclient.Page) (*runtimev1.ChildList, error) {
	return &runtimev1.ChildList{Children: t.children}, nil
}

var _ = Describe("A map", Label("REL-01"), func() {
	at := func(n int64) *int64 { return &n }
	record := func(id string) runtimev1.ThreadRecord {
		return runtimev1.ThreadRecord{ObjectMeta: metav1.ObjectMeta{Name: "name-" + id}, ThreadID: id, AgentID: "shop", MessageCount: 3}
	}
	family := func() map[string]mapped {
		origin := record("origin")
		origin.Title = `say "apples" <b>`
		child := record("child")
		child.ParentID, child.Terminated = "origin", at(1)
		return map[string]mapped{
			"origin": {record: origin, children: []runtimev1.Child{{ThreadID: "child", Status: "completed"}}, related: []runtimev1.Relationship{
				{ThreadID: "fork", Type: "fork", Role: "parent", MessageIndex: at(2)},
				{ThreadID: "next", Type: "handoff", Role: "parent", MessageIndex: at(5), Comment: "too\nlong"},
				{ThreadID: "other", Type: "mention", Role: "parent", MessageIndex: at(1)},
				{ThreadID: "deleted", Type: "fork", Role: "parent", MessageIndex: at(0)},
			}},
			"child": {record: child},
			"fork":  {record: record("fork"), related: []runtimev1.Relationship{{ThreadID: "origin", Type: "fork", Role: "child", MessageIndex: at(2)}}},
			"next":  {record: record("next"), related: []runtimev1.Relationship{{ThreadID: "origin", Type: "handoff", Role: "child", MessageIndex: at(5), Comment: "too\nlong"}, {ThreadID: "origin", Type: "mention", Role: "parent"}}},
			"other": {record: record("other"), related: []runtimev1.Relationship{{ThreadID: "stranger", Type: "fork", Role: "parent"}}},
		}
	}
	gather := func(name string, limit int) *threadMap {
		GinkgoHelper()
		all := family()
		m, err := gatherMap(context.Background(), func(id string) mapSource { return all[id] }, name, limit)
		Expect(err).NotTo(HaveOccurred())
		return m
	}

	It("has the whole family and each edge once, from any thread of it", func() {
		Expect(gather("origin", 100).text()).To(Equal(strings.TrimLeft(`
name-origin  (this thread)  "say \"apples\" <b>", agent shop, 3 messages
├─child: name-child  agent shop, 3 messages, terminated  (completed)
├─fork at message 2: name-fork  agent shop, 3 messages
├─handoff at message 5: name-next  agent shop, 3 messages  (too long)
│ └─mention: name-origin
├─mention at message 1: name-other
└─fork at message 0: T-deleted  gone
name-other  agent shop, 3 messages
`, "\n")))
		for _, from := range []string{"child", "fork", "next"} {
			m := gather(from, 100)
			Expect(m.threads).To(HaveLen(6), from)
			Expect(m.edges).To(HaveLen(6), from)
			Expect(m.text()).To(HavePrefix("name-origin  \"say"), from)
		}
	})

	It("has the relatives of a member that another one has mentioned", func() {
		below := func(parent, id string, children ...string) mapped {
			m := mapped{record: record(id)}
			m.record.ParentID = parent
			for _, c := range children {
				m.children = append(m.children, runtimev1.Child{ThreadID: c})
			}
			return m
		}
		all := map[string]mapped{
			"grandparent": below("", "grandparent", "parent"), "parent": below("grandparent", "parent", "child", "sister"), "child": below("parent", "child"),
			"sister": below("parent", "sister", "niece"), "niece": below("sister", "niece"),
		}
		child := all["child"]
		for _, id := range []string{"sister", "grandparent"} {
			child.related = append(child.related, runtimev1.Relationship{ThreadID: id, Type: "mention", Role: "parent"})
		}
		all["child"] = child
		for from := range all {
			m, err := gatherMap(context.Background(), func(id string) mapSource { return all[id] }, from, 100)
			Expect(err).NotTo(HaveOccurred())
			Expect(m.threads).To(HaveLen(5), from)
			Expect(m.edges).To(HaveLen(6), from)
		}
	})

	It("is drawn for Mermaid and for Graphviz, with what people wrote quoted", func() {
		m := gather("origin", 100)
		Expect(m.mermaid()).To(And(HavePrefix("flowchart TB\n"), ContainSubstring(`t0["name-origin<br/>#quot;say \#quot;apples\#quot; #lt;b#gt;#quot;, agent shop, 3 messages"]`),
			ContainSubstring("t0 -->|child| t1"), ContainSubstring("t0 ==>|handoff at message 5| t3"), ContainSubstring("t0 -.->|fork at message 2| t2"), ContainSubstring("t0 -.-o|mention at message 1| t5")))
		Expect(m.dot()).To(And(HavePrefix("digraph threads {\n"), ContainSubstring(`t0 [label="name-origin\n\"say \\\"apples\\\" <b>\", agent shop, 3 messages", penwidth=3];`),
			ContainSubstring(`t0 -> t3 [label="handoff at message 5", style=bold];`), HaveSuffix("}\n")))
	})

	It("stops at its limit of threads", func() {
		m := gather("origin", 2)
		Expect(m.threads).To(HaveLen(2))
		Expect(m.more).To(BeTrue())
		Expect(m.edges).To(HaveLen(1))
	})
})
