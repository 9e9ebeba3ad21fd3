package sqlstore

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/messages"
)

// SQLite reuses the key of a deleted row for the next thread. A caller that removes a remnant by its key must not remove that thread.
func TestRemovingARemnantKeepsAThreadThatReusesItsKey(t *testing.T) {
	g := NewWithT(t)
	ctx := t.Context()
	s, err := OpenSQLite(ctx, SQLiteOptions{Dir: t.TempDir()})
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(s.Close()).To(Succeed()) }()
	said := func(id string, op store.Op) {
		_, _, err := s.CreateThread(ctx, store.Thread{ID: id, Namespace: "n", Agent: "a"}, op)
		g.Expect(err).NotTo(HaveOccurred())
	}
	keys := func(query string, args ...any) (key int64) {
		g.Expect(s.db.Readers.Row(ctx, query, args, &key)).To(Succeed())
		return key
	}
	hello := &store.AppendMessage{Message: &store.Message{ID: "m", Role: store.RoleUser, Status: store.MessageCompleted}}
	said("origin", hello)
	said("fork", &store.Fork{Origin: "origin", Newest: true})
	_, err = s.PurgeThread(ctx, "origin")
	g.Expect(err).NotTo(HaveOccurred())
	remnant := keys(`SELECT key FROM thread WHERE namespace = ''`)
	g.Expect(messages.RemoveRemnant(ctx, s.db, remnant)).To(Succeed())
	g.Expect(s.Messages(ctx, "fork", store.MessageQuery{})).To(HaveField("Messages", HaveLen(1)), "the fork reads it")

	g.Expect(s.Apply(ctx, "fork", nil, &store.Truncate{Index: -1})).To(Succeed())
	said("next", hello)
	g.Expect(keys(`SELECT key FROM thread WHERE id = ?`, "next")).To(Equal(remnant))
	g.Expect(messages.RemoveRemnant(ctx, s.db, remnant)).To(Succeed())
	g.Expect(s.Messages(ctx, "next", store.MessageQuery{})).To(HaveField("Messages", HaveLen(1)))
}
