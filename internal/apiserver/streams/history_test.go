package streams

import (
	"context"
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

// largeThreads has a large thread for each id but gone.
type largeThreads struct{ store.Store }

func (largeThreads) Thread(_ context.Context, id string) (*store.Thread, error) {
	if id == "gone" {
		return nil, store.ErrNotFound
	}
	large := json.RawMessage(`"` + strings.Repeat("x", 500<<10) + `"`)
	return &store.Thread{ID: id, Arguments: large, Fields: store.Fields{
		Draft: string(large), AgentMode: "smart", ActivatedSkills: []store.SkillActivation{{Name: "sql", Arguments: large}},
		Workspace: &store.Workspace{Trees: []json.RawMessage{large}},
	}}, nil
}

var _ = Describe("threads that are read for items", Label("EVT-04", "K8S-12"), func() {
	It("have what an item shows, and are as many as a batch may have", func(ctx SpecContext) {
		rows, read, err := readThreads(largeThreads{})(ctx, []string{"a", "gone", "b", "c", "d", "e", "f", "g"})
		Expect(err).NotTo(HaveOccurred())
		var ids []string
		for _, row := range rows {
			ids = append(ids, row.ID)
		}
		Expect(ids).To(Equal([]string{"a", "b", "c", "d", "e"}), "two mebibytes of trees")
		Expect(read).To(Equal(6))
		Expect(rows[0].Arguments).To(BeNil())
		Expect(rows[0].Fields).To(And(HaveField("Draft", ""), HaveField("AgentMode", "smart"), HaveField("ActivatedSkills", BeEmpty()),
			HaveField("Workspace.Trees", HaveLen(1))))
	})
})
