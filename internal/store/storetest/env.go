package storetest

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

func describeEnv(e *env) {
	set := func(ctx context.Context, id, name, value string) {
		GinkgoHelper()
		e.apply(ctx, id, &store.SetEnv{Vars: []store.EnvVar{{Name: name, Value: []byte(value), KeyID: 7}}})
	}
	values := func(ctx context.Context, id string) map[string]string {
		GinkgoHelper()
		vars, err := e.store.Env(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		out := map[string]string{}
		for _, v := range vars {
			out[v.Name] = string(v.Value)
		}
		return out
	}
	child := func(ctx context.Context, id, parent string, scoped ...string) {
		GinkgoHelper()
		_, _, err := e.store.CreateThread(ctx, store.Thread{ID: id, Namespace: "default", Agent: "a", ParentID: parent, ScopedEnv: scoped})
		Expect(err).NotTo(HaveOccurred())
	}

	Describe("variables", func() {
		It("are stored sealed, with their type, by name", Label("ENV-02"), func(ctx SpecContext) {
			id := e.thread(ctx)
			Expect(e.store.Env(ctx, id)).To(BeEmpty())
			e.apply(ctx, id, &store.SetEnv{Vars: []store.EnvVar{
				{Name: "B", Type: store.EnvText, Value: []byte{0, 255, 1}, KeyID: 1<<32 - 1, Origin: store.EnvSpec, Entry: "e1", Version: "v1"},
				{Name: "A", Value: []byte("x"), KeyID: 2},
			}})
			Expect(e.store.Env(ctx, id)).To(Equal([]store.EnvVar{
				{Name: "A", Type: store.EnvSecret, Value: []byte("x"), KeyID: 2, Origin: store.EnvSet, UpdatedAt: e.now()},
				{Name: "B", Type: store.EnvText, Value: []byte{0, 255, 1}, KeyID: 1<<32 - 1, Origin: store.EnvSpec, Entry: "e1", Version: "v1", UpdatedAt: e.now()},
			}))
			set(ctx, id, "B", "y")
			vars, err := e.store.Env(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			Expect(vars[1].Type).To(Equal(store.EnvText), "it keeps its type")
			Expect(vars[1].Origin).To(Equal(store.EnvSet))
			Expect(vars[1].Entry).To(Equal("e1"), "so that the same entry of the spec does not come back")
			op := &store.UnsetEnv{Names: []string{"B", "none"}}
			e.apply(ctx, id, op)
			Expect(op.Removed).To(Equal(1))
			Expect(values(ctx, id)).To(Equal(map[string]string{"A": "x"}))
			_, err = e.store.Env(ctx, "none")
			Expect(err).To(MatchError(store.ErrNotFound))
		})

		It("reach every active descendant except where the name is scoped", Label("ENV-04"), func(ctx SpecContext) {
			root := e.thread(ctx)
			set(ctx, root, "OLD", "o")
			set(ctx, root, "KEY_A", "first")
			child(ctx, "plain", root)
			child(ctx, "scoped", root, "KEY_A", "OTHER")
			child(ctx, "below-scoped", "scoped")
			child(ctx, "below-plain", "plain")
			child(ctx, "ended", root)
			child(ctx, "similar", root, "KEYXA", "KEY_AB", "AKEY_A")
			Expect(values(ctx, "plain")).To(Equal(map[string]string{"OLD": "o", "KEY_A": "first"}))
			Expect(values(ctx, "scoped")).To(Equal(map[string]string{"OLD": "o"}))
			Expect(values(ctx, "below-scoped")).To(Equal(map[string]string{"OLD": "o"}))
			Expect(e.info(ctx, "scoped").ScopedEnv).To(Equal([]string{"KEY_A", "OTHER"}))
			e.apply(ctx, "ended", &store.Terminate{Reason: "TerminatedByRequest"})

			set(ctx, root, "KEY_A", "second")
			for id, want := range map[string]string{root: "second", "plain": "second", "below-plain": "second", "similar": "second", "ended": "first", "scoped": "", "below-scoped": ""} {
				Expect(values(ctx, id)["KEY_A"]).To(Equal(want), id)
			}
			set(ctx, "scoped", "KEY_A", "own")
			Expect(values(ctx, "below-scoped")).To(HaveKeyWithValue("KEY_A", "own"))
			Expect(values(ctx, root)).To(HaveKeyWithValue("KEY_A", "second"))

			set(ctx, "below-plain", "KEY_A", "mine")
			e.apply(ctx, root, &store.UnsetEnv{Names: []string{"KEY_A"}})
			Expect(values(ctx, "plain")).To(Equal(map[string]string{"OLD": "o"}))
			Expect(values(ctx, "below-plain")).To(HaveKeyWithValue("KEY_A", "mine"), "the values set there stay")
			Expect(values(ctx, "scoped")).To(HaveKeyWithValue("KEY_A", "own"))
		})

		It("are no longer inherited once their name is scoped", Label("ENV-04"), func(ctx SpecContext) {
			root := e.thread(ctx)
			set(ctx, root, "A", "1")
			child(ctx, "c", root)
			set(ctx, "c", "B", "2")
			e.apply(ctx, "c", &store.ScopeEnv{Names: []string{"B", "A"}})
			Expect(e.info(ctx, "c").ScopedEnv).To(Equal([]string{"A", "B"}))
			Expect(values(ctx, "c")).To(Equal(map[string]string{"B": "2"}), "its own values stay")
			set(ctx, root, "A", "3")
			Expect(values(ctx, "c")).NotTo(HaveKey("A"))
			e.apply(ctx, "c", &store.ScopeEnv{})
			Expect(e.info(ctx, "c").ScopedEnv).To(BeEmpty())
			set(ctx, root, "A", "4")
			Expect(values(ctx, "c")).To(HaveKeyWithValue("A", "4"))
		})

		It("wake the runs that wait for them", Label("ENV-06"), func(ctx SpecContext) {
			root := e.thread(ctx)
			child(ctx, "waits", root)
			child(ctx, "other", root)
			e.apply(ctx, "waits", &store.PutRun{Run: store.Run{ID: "r1", Status: store.RunWaiting, Reason: "EnvMissing"}})
			e.apply(ctx, "other", &store.PutRun{Run: store.Run{ID: "r2", Status: store.RunWaiting, Reason: ""}})
			Expect(e.store.EnvWaiting(ctx, "default", "", 10)).To(Equal([]string{"waits"}))
			Expect(e.store.EnvWaiting(ctx, "", "", 10)).To(Equal([]string{"waits"}))
			Expect(e.store.EnvWaiting(ctx, "default", "waits", 10)).To(BeEmpty())
			Expect(e.store.EnvWaiting(ctx, "elsewhere", "", 10)).To(BeEmpty())
			Expect(e.store.Runnable(ctx, 10)).To(BeEmpty())
			set(ctx, root, "A", "1")
			Expect(e.store.Runnable(ctx, 10)).To(Equal([]string{"waits"}))
			Expect(e.inbox(ctx, "waits")).To(ConsistOf(HaveField("Kind", store.InboxResume)))
			Expect(e.inbox(ctx, "other")).To(BeEmpty())
			e.apply(ctx, "waits", &store.PutRun{Run: store.Run{ID: "r1", Status: store.RunSucceeded}})
			Expect(e.store.EnvWaiting(ctx, "default", "", 10)).To(BeEmpty())
		})

		It("are sealed under another key page by page, except those that changed meanwhile", Label("ENV-05"), func(ctx SpecContext) {
			a, b := e.thread(ctx), e.thread(ctx)
			for _, id := range []string{a, b} {
				set(ctx, id, "X", "old-x")
				set(ctx, id, "Y", "old-y")
			}
			e.apply(ctx, a, &store.SetEnv{Vars: []store.EnvVar{{Name: "NEW", Value: []byte("n"), KeyID: 8}}})
			Expect(e.store.EnvKeys(ctx)).To(Equal(map[uint32]int64{7: 4, 8: 1}))
			var after *store.SealedEnv
			var seen []string
			version := e.info(ctx, a).Version
			for {
				page, err := e.store.EnvNotUnder(ctx, 8, after, 3)
				Expect(err).NotTo(HaveOccurred())
				var change []store.ResealedEnv
				for _, v := range page {
					Expect(v.RootID).To(Equal(v.ThreadID))
					Expect(v.KeyID).To(BeEquivalentTo(7))
					seen = append(seen, v.ThreadID+v.Name)
					change = append(change, store.ResealedEnv{ThreadID: v.ThreadID, Name: v.Name, Old: v.Value, New: []byte("new"), KeyID: 8})
				}
				if after == nil {
					e.clock.Step(time.Second)
					set(ctx, a, "Y", "changed")
					version++
				}
				Expect(e.store.ResealEnv(ctx, change)).To(Succeed())
				if len(page) < 3 {
					break
				}
				after = &page[2]
			}
			Expect(seen).To(Equal([]string{a + "X", a + "Y", b + "X", b + "Y"}))
			Expect(values(ctx, a)).To(Equal(map[string]string{"X": "new", "Y": "changed", "NEW": "n"}))
			Expect(e.store.EnvKeys(ctx)).To(Equal(map[uint32]int64{7: 1, 8: 4}))
			Expect(e.info(ctx, a).Version).To(Equal(version), "another key does not change the thread")
		})

		It("are removed with their thread", func(ctx SpecContext) {
			id := e.thread(ctx)
			set(ctx, id, "A", "1")
			_, err := e.store.PurgeThread(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			Expect(e.store.EnvKeys(ctx)).To(BeEmpty())
		})
	})
}
