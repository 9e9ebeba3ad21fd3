package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
)

// livingNow returns how many children the store counts in a scope of a task, by a reservation that the limit of none refuses.
func livingNow(ctx context.Context, s store.Store, t store.ChildTask, scope store.ChildScope) int {
	GinkgoHelper()
	t.ID += "-refused"
	_, err := s.ReserveChild(ctx, t, []store.ChildLimit{{Scope: scope, Most: 0}})
	var over *store.ChildLimitError
	Expect(errors.As(err, &over)).To(BeTrue(), "%v", err)
	Expect(over.Scope).To(Equal(scope))
	return over.Living
}

func describeChildCounts(e *env) {
	Describe("the number of living children", Label("SUB-03"), func() {
		It("is right in each scope, whatever becomes of hundreds of them", func(ctx SpecContext) {
			parents := []string{e.thread(ctx), e.thread(ctx), e.threadIn(ctx, "other")}
			var living []store.ChildTask
			made := 0
			count := func(is func(store.ChildTask) bool) int {
				n := 0
				for _, t := range living {
					if is(t) {
						n++
					}
				}
				return n
			}
			check := func(t store.ChildTask) {
				GinkgoHelper()
				for scope, is := range map[store.ChildScope]func(store.ChildTask) bool{
					store.ChildrenOfParent:    func(o store.ChildTask) bool { return o.ParentID == t.ParentID },
					store.ChildrenOfKind:      func(o store.ChildTask) bool { return o.ParentID == t.ParentID && o.Kind == t.Kind },
					store.ChildrenOfAgent:     func(o store.ChildTask) bool { return o.Namespace == t.Namespace && o.Agent == t.Agent },
					store.ChildrenOfNamespace: func(o store.ChildTask) bool { return o.Namespace == t.Namespace },
				} {
					Expect(livingNow(ctx, e.store, t, scope)).To(Equal(count(is)), string(scope))
				}
				kinds := map[string]int{}
				for _, o := range living {
					if o.ParentID == t.ParentID {
						kinds[o.Kind]++
					}
				}
				Expect(e.store.LivingChildren(ctx, t.Namespace, t.ParentID)).To(Equal(kinds))
			}
			r := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 44))
			for range 300 {
				if len(living) > 0 && r.IntN(5) < 2 {
					at := r.IntN(len(living))
					t := living[at]
					living = slices.Delete(living, at, at+1)
					switch child, err := e.store.Child(ctx, t.ParentID, t.Reference); {
					case err != nil:
						Expect(err).To(MatchError(store.ErrNotFound))
						Expect(e.store.ReleaseChild(ctx, t.ParentID, t.Reference)).To(Succeed())
					case r.IntN(2) == 0:
						e.apply(ctx, child.ID, &store.Terminate{})
					default:
						_, err := e.store.PurgeThread(ctx, child.ID)
						Expect(err).NotTo(HaveOccurred())
					}
					continue
				}
				made++
				at := r.IntN(len(parents))
				t := store.ChildTask{ID: fmt.Sprint("task-", made), ParentID: parents[at], Reference: fmt.Sprint("child-", made), Namespace: []string{"default", "default", "other"}[at],
					Kind: fmt.Sprint("kind-", r.IntN(2)), Agent: fmt.Sprint("agent-", r.IntN(2))}
				declared := r.IntN(3) == 0
				if !declared {
					_, err := e.store.ReserveChild(ctx, t, nil)
					Expect(err).NotTo(HaveOccurred())
				}
				if declared || r.IntN(2) == 0 {
					_, _, err := e.store.CreateThread(ctx, store.Thread{ID: fmt.Sprint("thread-", made), Namespace: t.Namespace, Name: t.Reference, Agent: t.Agent, ParentID: t.ParentID,
						Reference: t.Reference, Child: &store.Child{Name: t.Kind}})
					Expect(err).NotTo(HaveOccurred())
				}
				living = append(living, t)
				if made%20 == 0 {
					check(t)
				}
			}
			By("purging the parents with what is left")
			left := []store.ChildTask{{Namespace: "default", ParentID: parents[0]}, {Namespace: "default", ParentID: parents[1]}, {Namespace: "other", ParentID: parents[2]}}
			for _, t := range living {
				if child, err := e.store.Child(ctx, t.ParentID, t.Reference); err == nil {
					_, err := e.store.PurgeThread(ctx, child.ID)
					Expect(err).NotTo(HaveOccurred())
				}
			}
			for _, id := range parents {
				_, err := e.store.PurgeThread(ctx, id)
				Expect(err).NotTo(HaveOccurred())
			}
			living = nil
			for _, t := range left {
				check(t)
			}
		})

		It("does not exceed a limit when replicas reserve at the same time, while others end", func(ctx SpecContext) {
			replicas := []store.Store{e.store, e.replica()}
			earlier := e.thread(ctx)
			reserve := func(s store.Store, parent, reference string, limits ...store.ChildLimit) error {
				_, err := s.ReserveChild(ctx, store.ChildTask{ID: parent + reference, ParentID: parent, Reference: reference, Namespace: "default", Kind: "helper", Agent: "worker"}, limits)
				return err
			}
			const rounds = 30
			for round := range rounds {
				Expect(reserve(e.store, earlier, fmt.Sprint("child-", round))).To(Succeed())
			}
			for round := range rounds {
				parent := e.thread(ctx)
				var granted atomic.Int32
				var group sync.WaitGroup
				for i := range 8 {
					group.Go(func() {
						defer GinkgoRecover()
						err := reserve(replicas[i%2], parent, fmt.Sprint("child-", i), store.ChildLimit{Scope: store.ChildrenOfParent, Most: 3},
							store.ChildLimit{Scope: store.ChildrenOfNamespace, Most: rounds + 3})
						if err == nil {
							granted.Add(1)
						} else {
							Expect(errors.As(err, new(*store.ChildLimitError))).To(BeTrue(), "%v", err)
						}
					})
				}
				group.Go(func() {
					defer GinkgoRecover()
					Expect(replicas[1].ReleaseChild(ctx, earlier, fmt.Sprint("child-", round))).To(Succeed())
				})
				group.Wait()
				Expect(granted.Load()).To(BeEquivalentTo(3))
				for i := range 8 {
					Expect(e.store.ReleaseChild(ctx, parent, fmt.Sprint("child-", i))).To(Succeed())
				}
			}
		})
	})
}

// describeCountedRows checks the rows by which children are counted, in the database itself.
func describeCountedRows(fresh func(ctx context.Context) Migrating) {
	task := func(parent, reference string) store.ChildTask {
		return store.ChildTask{ID: parent + "-" + reference, ParentID: parent, Reference: reference, Namespace: "team", Kind: "helper", Agent: "worker"}
	}
	const put = `INSERT INTO child_task (id, parent_id, reference, namespace, kind, agent, task, salt, living, created_at)
		VALUES ('%[1]s', 'old', '%[1]s', 'team', 'helper', 'worker', NULL, 's', %[2]d, 5)`

	It("counts the children that an earlier release has made, and those that it makes and ends meanwhile", Label("SUB-03", "K8S-10"), func(ctx SpecContext) {
		m := fresh(ctx)
		_, err := provider(m).UpTo(ctx, 43)
		Expect(err).NotTo(HaveOccurred())
		exec := func(statements ...string) {
			GinkgoHelper()
			for _, s := range statements {
				_, err := m.DB.ExecContext(ctx, s)
				Expect(err).NotTo(HaveOccurred(), s)
			}
		}
		exec(fmt.Sprintf(put, "a", 1), fmt.Sprintf(put, "b", 1), fmt.Sprintf(put, "c", 1), fmt.Sprintf(put, "d", 0))
		s, err := m.Open()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(s.Close()).To(Succeed()) })
		living := func() (all []int) {
			GinkgoHelper()
			for _, scope := range []store.ChildScope{store.ChildrenOfParent, store.ChildrenOfKind, store.ChildrenOfAgent, store.ChildrenOfNamespace} {
				all = append(all, livingNow(ctx, s, task("old", "more"), scope))
			}
			return all
		}
		Expect(living()).To(HaveEach(3))
		exec(fmt.Sprintf(put, "e", 1), fmt.Sprintf(put, "f", 0), `UPDATE child_task SET living = 0 WHERE id IN ('a', 'd')`, `UPDATE child_task SET living = 1 WHERE id = 'd'`)
		Expect(living()).To(HaveEach(4))
		exec(`DELETE FROM child_task WHERE parent_id = 'old' AND id <> 'b'`)
		Expect(living()).To(HaveEach(1))
		Expect(m.DB.Close()).To(Succeed())
	})

	It("counts ten times as many children by as many rows, also when no run makes any", Label("SUB-03"), func(ctx SpecContext) {
		m := fresh(ctx)
		s, err := m.Open()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(s.Close()).To(Succeed()) })
		rows := func(table string) (n int) {
			GinkgoHelper()
			Expect(m.DB.QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&n)).To(Succeed())
			return n
		}
		_, _, err = s.CreateThread(ctx, store.Thread{ID: "parent", Namespace: "team", Name: "parent", Agent: "a"})
		Expect(err).NotTo(HaveOccurred())
		made := 0
		for _, n := range []int{100, 1000} {
			for made < n {
				made++
				_, err := s.ReserveChild(ctx, task("parent", fmt.Sprint("child-", made)), []store.ChildLimit{{Scope: store.ChildrenOfNamespace, Most: 2000}})
				Expect(err).NotTo(HaveOccurred())
				Expect(rows("child_change")).To(BeNumerically("<=", 64))
			}
			Expect(livingNow(ctx, s, task("parent", "more"), store.ChildrenOfParent)).To(Equal(n))
			Expect(rows("child_count")).To(Equal(4), "one for each scope")
			Expect(s.LivingChildren(ctx, "team", "parent")).To(Equal(map[string]int{"helper": n}))
		}
		_, err = m.DB.ExecContext(ctx, "UPDATE child_count SET n = n + 5 WHERE scope = 'kind'")
		Expect(err).NotTo(HaveOccurred())
		Expect(s.LivingChildren(ctx, "team", "parent")).To(Equal(map[string]int{"helper": 1005}), "the rows of the children are not counted")
		_, err = m.DB.ExecContext(ctx, "UPDATE child_count SET n = n - 5 WHERE scope = 'kind'")
		Expect(err).NotTo(HaveOccurred())

		By("releasing them")
		for i := range made {
			Expect(s.ReleaseChild(ctx, "parent", fmt.Sprint("child-", i+1))).To(Succeed())
			if left := made - 1 - i; i%100 == 99 && left > 0 {
				Expect(s.LivingChildren(ctx, "team", "parent")).To(Equal(map[string]int{"helper": left}))
				Expect(rows("child_change")).To(BeZero(), "who counts them adds up many changes")
			}
		}
		Expect(s.LivingChildren(ctx, "team", "parent")).To(BeEmpty())
		_, err = s.ReserveChild(ctx, task("parent", "last"), nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(rows("child_change")).To(Equal(1), "that of the last one")
		Expect(rows("child_count")).To(BeZero(), "no scope has others")

		By("declaring some and deleting them")
		for i := range 200 {
			id := fmt.Sprint("declared-", i)
			_, _, err := s.CreateThread(ctx, store.Thread{ID: id, Namespace: "team", Name: id, Agent: "worker", ParentID: "parent", Reference: id, Child: &store.Child{Name: "helper"}})
			Expect(err).NotTo(HaveOccurred())
			_, err = s.PurgeThread(ctx, id)
			Expect(err).NotTo(HaveOccurred())
			Expect(rows("child_change")).To(BeNumerically("<", 64))
		}
		Expect(livingNow(ctx, s, task("parent", "more"), store.ChildrenOfParent)).To(Equal(1))
		Expect(m.DB.Close()).To(Succeed())
	})
}
