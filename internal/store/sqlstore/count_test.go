package sqlstore_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore"
)

// countedTables are the tables that grow with use.
var countedTables = []string{"thread", "message", "log", "run", "inbox", "inbox_key", "file", "contents", "kv", "effect_firing", "idempotency", "embedding"}

var _ = Describe("A count of what SQLite stores", Label("K8S-06"), func() {
	// rows of each table, which are some steps and a part of one.
	const rows = 16

	It("has all rows of each table, in steps that read few of them", func(ctx SpecContext) {
		s := openSQLite(ctx, GinkgoT().TempDir())
		for i := range rows {
			Expect(plant(ctx, s, i)).To(Succeed())
		}
		for i := range rows { // more of a thread than a step reads: of one between others, and of the last
			for _, thread := range []string{"00000000-0000-4000-8000-000000000003", "00000000-0000-4000-8000-000000000015"} {
				Expect(s.Apply(ctx, thread, nil, &store.PutValue{Key: fmt.Sprintf("more-%02d", i), Value: json.RawMessage("1")})).To(Succeed())
			}
		}
		c, steps := s.Count(), 1
		for {
			done, err := c.Step(ctx)
			Expect(err).NotTo(HaveOccurred())
			if done {
				break
			}
			steps++
		}
		Expect(c.ContentsBytes()).To(BeEquivalentTo(10 * rows))
		Expect(steps).To(BeNumerically(">", 2*len(c.Rows())))
		for _, table := range countedTables {
			all, err := s.RowsOf(ctx, table)
			Expect(err).NotTo(HaveOccurred())
			Expect(c.Rows()).To(HaveKeyWithValue(table, all))
			if table != "embedding" && table != "effect_firing" && table != "idempotency" {
				Expect(all).To(BeNumerically(">=", rows), table)
			}
		}
	})

	It("reads an index or the order of the rows, and sorts nothing", func(ctx SpecContext) {
		s := openSQLite(ctx, GinkgoT().TempDir())
		for query, args := range sqlstore.CountQueries() {
			plan, err := s.Plan(ctx, query, make([]any, args)...)
			Expect(err).NotTo(HaveOccurred())
			var steps []string
			for _, step := range plan {
				if step != "SCAN slice" && !strings.HasPrefix(step, "CO-ROUTINE") {
					steps = append(steps, step)
				}
			}
			Expect(steps).To(HaveExactElements(MatchRegexp(`^SEARCH \w+ USING (COVERING INDEX|PRIMARY KEY) `)), query)
		}
	})
})

// plant stores a thread that has a row in each table that grows with a conversation.
func plant(ctx context.Context, s store.Store, i int) error {
	digest := fmt.Sprintf("%064x", i)
	_, _, err := s.CreateThread(ctx, store.Thread{ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i), Namespace: fmt.Sprint("ns", i%20), Name: fmt.Sprint("t", i), Agent: "a"},
		&store.AppendMessage{Message: &store.Message{ID: fmt.Sprint("m", i), Role: "user", Content: ptr.To(strings.Repeat("what was said ", 150))}},
		&store.PutRun{Run: store.Run{ID: "r", Agent: "a", Status: store.RunSucceeded}},
		&store.PutValue{Key: "k", Value: json.RawMessage(`"v"`)},
		&store.PutFile{File: store.File{Path: "/f", Digest: digest, Size: 10}, Object: "blobs/" + digest, Uploaded: 1 << 62},
		&store.Enqueue{Item: store.InboxItem{Kind: store.InboxTool, Key: "first", Payload: json.RawMessage(`{"name":"t"}`)}})
	return err
}
