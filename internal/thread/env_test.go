package thread_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/envkeys"
	"github.com/skein-dev/skein/internal/redact"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

// layers are the layers below the threads' own variables, the same for all threads.
type layers struct{ thread.EnvLayers }

func (l *layers) Layers(context.Context, *store.Thread) (*thread.EnvLayers, error) {
	return &l.EnvLayers, nil
}

var _ = Describe("Variables", func() {
	var e *env
	var ring *envkeys.Keyring
	var keyset []byte
	var below *layers
	var secrets *redact.Registry
	BeforeEach(func(ctx SpecContext) {
		e = newEnv(ctx)
		var err error
		keyset, err = envkeys.Generate()
		Expect(err).NotTo(HaveOccurred())
		ring, below, secrets = &envkeys.Keyring{}, &layers{}, redact.NewRegistry(nil)
		Expect(ring.Use(keyset)).To(BeTrue())
		e.ServeEnv(thread.EnvOptions{Cipher: ring, Layers: below, Secrets: secrets})
	})
	value := func(ctx context.Context, st *thread.State, name string) string {
		GinkgoHelper()
		v, err := st.EnvValue(ctx, name)
		Expect(err).NotTo(HaveOccurred())
		return fmt.Sprintf("%s %s %s", v.Value, v.Type, v.Source)
	}

	It("come from the prompt of the side in use", Label("ENV-01", "AGT-01"), func(ctx SpecContext) {
		st := e.create(ctx, "t")
		side, called := "a", []string(nil)
		sided := st.WithReader(func(context.Context) thread.EnvReader { return thread.EnvReader{Side: side, Called: called} })
		below.Values = []thread.EnvValue{
			{Name: "BOTH", Value: "of the agent", Type: store.EnvText, Source: thread.EnvFromAgent},
			{Name: "TONE", Value: "kind", Type: store.EnvText, Source: thread.EnvFromPrompt, Side: "a"},
			{Name: "TONE", Value: "harsh", Type: store.EnvSecret, Source: thread.EnvFromPrompt, Side: "b"},
			{Name: "ONLY_B", Value: "x", Type: store.EnvText, Source: thread.EnvFromPrompt, Side: "b"},
			{Name: "BOTH", Value: "of a called prompt", Type: store.EnvText, Source: thread.EnvFromPrompt, Called: "outer"},
			{Name: "TONE", Value: "flat", Type: store.EnvText, Source: thread.EnvFromPrompt, Called: "inner"},
			{Name: "TONE", Value: "dry", Type: store.EnvText, Source: thread.EnvFromPrompt, Called: "outer"},
			{Name: "ONLY_OUTER", Value: "y", Type: store.EnvText, Source: thread.EnvFromPrompt, Called: "outer"},
		}
		below.Declared = []thread.EnvDeclaration{{Name: "ONLY_B", Required: true}}
		Expect(value(ctx, sided, "TONE")).To(Equal("kind text prompt"))
		_, err := sided.EnvValue(ctx, "ONLY_B")
		Expect(err).To(MatchError(thread.ErrEnvUnknown))
		Expect(st.PendingEnv(ctx)).To(BeEmpty(), "the side that requires it has it")
		side = "b"
		Expect(value(ctx, sided, "TONE")).To(Equal("harsh secret prompt"))
		Expect(value(ctx, sided, "ONLY_B")).To(Equal("x text prompt"))
		Expect(value(ctx, sided, "BOTH")).To(Equal("of the agent text agent"))
		Expect(value(ctx, st, "TONE")).To(Equal("kind text prompt"), "where no side is set")
		_, err = sided.EnvValue(ctx, "ONLY_OUTER")
		Expect(err).To(MatchError(thread.ErrEnvUnknown), "it is not called")
		called = []string{"outer"}
		Expect(value(ctx, sided, "TONE")).To(Equal("dry text prompt"), "before the caller's")
		Expect(value(ctx, sided, "BOTH")).To(Equal("of the agent text agent"), "the agent's comes first")
		Expect(value(ctx, sided, "ONLY_B")).To(Equal("x text prompt"), "the caller's variables are set too")
		called = []string{"outer", "inner"}
		Expect(value(ctx, sided, "TONE")).To(Equal("flat text prompt"))
		Expect(value(ctx, sided, "ONLY_OUTER")).To(Equal("y text prompt"))

		listed := func(side string) (out []string) {
			GinkgoHelper()
			list, err := st.ListEnv(ctx, side)
			Expect(err).NotTo(HaveOccurred())
			for _, v := range list {
				out = append(out, fmt.Sprintf("%s %s=%s", v.Side, v.Name, v.Value))
			}
			return out
		}
		Expect(listed("")).To(Equal([]string{" BOTH=of the agent", " TONE=kind"}))
		_, err = st.ListEnv(ctx, "b")
		Expect(err).To(MatchError(thread.ErrOneSide))
		below.Dual = true
		Expect(listed("")).To(Equal([]string{" BOTH=of the agent", "b ONLY_B=x", "a TONE=kind", "b TONE=harsh"}))
		Expect(listed("a")).To(Equal([]string{" BOTH=of the agent", " TONE=kind"}))
		Expect(listed("b")).To(Equal([]string{" BOTH=of the agent", " ONLY_B=x", " TONE=harsh"}))
	})

	It("come from the first source that has them", Label("ENV-01"), func(ctx SpecContext) {
		st := e.create(ctx, "t")
		for i, source := range []thread.EnvSource{thread.EnvFromUser, thread.EnvFromInstance, thread.EnvFromAgent, thread.EnvFromPrompt} {
			for _, name := range []string{"A", "B", "C", "D", "E"}[:i+2] {
				below.Values = append(below.Values, thread.EnvValue{Name: name, Value: "of " + string(source), Type: store.EnvText, Source: source})
			}
		}
		Expect(st.SetEnv(ctx, "A", "of thread", "")).To(Succeed())
		Expect(value(ctx, st, "A")).To(Equal("of thread secret thread"))
		Expect(value(ctx, st, "B")).To(Equal("of user text user"))
		Expect(value(ctx, st, "C")).To(Equal("of instance text instance"))
		Expect(value(ctx, st, "D")).To(Equal("of agent text agent"))
		Expect(value(ctx, st, "E")).To(Equal("of prompt text prompt"))
		_, err := st.EnvValue(ctx, "NONE")
		Expect(err).To(MatchError(thread.ErrEnvUnknown))
		Expect(err).To(MatchError(ContainSubstring("NONE")))
		list, err := st.ListEnv(ctx, "")
		Expect(err).NotTo(HaveOccurred())
		Expect(list).To(HaveLen(5))
		Expect(list[0].Name + list[4].Name).To(Equal("AE"))
		Expect(st.UnsetEnv(ctx, "A")).To(BeTrue())
		Expect(value(ctx, st, "A")).To(Equal("of user text user"))
		Expect(st.UnsetEnv(ctx, "A")).To(BeFalse())
	})

	It("are secret unless said otherwise, and keep their type", Label("ENV-02"), func(ctx SpecContext) {
		st := e.create(ctx, "t")
		Expect(st.EnvType(ctx, "NONE")).To(Equal(store.EnvSecret))
		Expect(st.SetEnv(ctx, "A", "secret-a", "")).To(Succeed())
		Expect(st.EnvType(ctx, "A")).To(Equal(store.EnvSecret))
		Expect(secrets.Text("default", "secret-a")).To(Equal("[redacted]"))
		Expect(st.SetEnv(ctx, "B", "plain-b", store.EnvText)).To(Succeed())
		Expect(st.SetEnv(ctx, "B", "plain-c", "")).To(Succeed())
		Expect(value(ctx, st, "B")).To(Equal("plain-c text thread"))
		Expect(secrets.Text("default", "plain-b plain-c")).To(Equal("plain-b plain-c"))
		Expect(st.SetEnv(ctx, "B", "now-secret", store.EnvSecret)).To(Succeed())
		Expect(st.EnvType(ctx, "B")).To(Equal(store.EnvSecret))
	})

	It("are refused when they are invalid", Label("THR-18"), func(ctx SpecContext) {
		st := e.create(ctx, "t")
		for _, name := range []string{"", "1A", "A-B", "A B", "pending", strings.Repeat("A", 129), "Ä"} {
			Expect(st.SetEnv(ctx, name, "v", "")).To(beInvalid("name", ""), name)
			_, err := st.EnvValue(ctx, name)
			Expect(err).To(beInvalid("name", ""), name)
		}
		Expect(st.SetEnv(ctx, "A", "v", "loud")).To(beInvalid("type", "text"))
		Expect(st.SetEnv(ctx, "A", strings.Repeat("v", thread.MaxEnvValueBytes+1), "")).To(beInvalid("value", "32768"))
		Expect(st.SetEnv(ctx, "A", "a\x00b", "")).To(beInvalid("value", "NUL"))
	})

	It("are sealed in the database, for their tree", Label("ENV-05"), func(ctx SpecContext) {
		st := e.create(ctx, "t")
		Expect(st.SetEnv(ctx, "A", "canary-of-the-database", "")).To(Succeed())
		_, _, err := e.Create(ctx, thread.NewThread{Thread: store.Thread{ID: "c", Namespace: "default", Agent: "a", ParentID: "t"},
			Env: []thread.SpecEnv{{Name: "S", Value: "canary-of-the-spec", Entry: "1"}}})
		Expect(err).NotTo(HaveOccurred())
		child := e.open(ctx, "c")
		Expect(value(ctx, child, "A")).To(Equal("canary-of-the-database secret thread"))
		Expect(value(ctx, child, "S")).To(Equal("canary-of-the-spec secret thread"))
		Expect(filepath.WalkDir(filepath.Dir(e.blobDir), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			Expect(string(data)).NotTo(ContainSubstring("canary-of"), path)
			return err
		})).To(Succeed())
		vars, err := e.store.Env(ctx, "t")
		Expect(err).NotTo(HaveOccurred())
		e.create(ctx, "elsewhere")
		Expect(e.store.Apply(ctx, "elsewhere", nil, &store.SetEnv{Vars: vars})).To(Succeed())
		_, err = e.open(ctx, "elsewhere").EnvValue(ctx, "A")
		Expect(err).To(MatchError(ContainSubstring("sealed for another thread")))
	})

	It("of a subagent are kept when its retained thread is adopted, with those of its own subagents", Label("ENV-04", "ENV-05", "THR-09"), func(ctx SpecContext) {
		root := e.create(ctx, "root")
		Expect(root.SetEnv(ctx, "TOKEN", "of root", "")).To(Succeed())
		child := func(id, parent string) {
			GinkgoHelper()
			_, _, err := e.Create(ctx, thread.NewThread{Thread: store.Thread{ID: id, Namespace: "default", Name: id, Agent: "a", ParentID: parent, Reference: id, Child: &store.Child{Name: "kind"}}})
			Expect(err).NotTo(HaveOccurred())
		}
		child("kept", "root")
		child("under", "kept")
		db := e.store
		Expect(db.Apply(ctx, "kept", nil, &store.Retain{})).To(Succeed())
		Expect(db.AdoptBelow(ctx, "kept", 10)).To(Equal(1))
		Expect(db.Apply(ctx, "kept", nil, &store.Adopt{ObjectUID: "new", Name: "kept", Agent: "helper"})).To(Succeed())
		Expect(value(ctx, e.open(ctx, "kept"), "TOKEN")).To(Equal("of root secret thread"))
		Expect(value(ctx, e.open(ctx, "under"), "TOKEN")).To(Equal("of root secret thread"))
		Expect(e.open(ctx, "kept").SetEnv(ctx, "TOKEN", "of kept", "")).To(Succeed())
		Expect(value(ctx, e.open(ctx, "under"), "TOKEN")).To(Equal("of kept secret thread"))
		child("new", "under")
		Expect(value(ctx, e.open(ctx, "new"), "TOKEN")).To(Equal("of kept secret thread"))
		Expect(value(ctx, root, "TOKEN")).To(Equal("of root secret thread"))
	})

	It("are sealed under a new key, and errors name a missing key", Label("ENV-05"), func(ctx SpecContext) {
		var states []*thread.State
		for i := range 3 {
			st := e.create(ctx, fmt.Sprint("t", i))
			for k := range 100 {
				Expect(st.SetEnv(ctx, fmt.Sprint("K", k), fmt.Sprint("value-", i, "-", k), "")).To(Succeed())
			}
			states = append(states, st)
		}
		old, err := ring.Primary()
		Expect(err).NotTo(HaveOccurred())
		rotated, primary, err := envkeys.Rotate(keyset)
		Expect(err).NotTo(HaveOccurred())
		Expect(ring.Use(rotated)).To(BeTrue())
		done, left, err := e.ResealEnv(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect([]int{done, left}).To(Equal([]int{300, 0}))
		Expect(e.store.EnvKeys(ctx)).To(Equal(map[uint32]int64{primary: 300}))
		done, _, err = e.ResealEnv(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(done).To(BeZero())
		without, err := envkeys.Remove(rotated, old)
		Expect(err).NotTo(HaveOccurred())
		Expect(ring.Use(without)).To(BeTrue())
		Expect(value(ctx, states[2], "K99")).To(Equal("value-2-99 secret thread"))

		fresh, err := envkeys.Generate()
		Expect(err).NotTo(HaveOccurred())
		Expect(ring.Use(fresh)).To(BeTrue())
		_, err = states[0].EnvValue(ctx, "K1")
		Expect(err).To(MatchError(ContainSubstring(fmt.Sprintf("key %d", primary))))
		Expect(err.Error()).NotTo(ContainSubstring("value-"))
		_, left, err = e.ResealEnv(ctx)
		Expect(left).To(Equal(300))
		Expect(err).To(MatchError(ContainSubstring(fmt.Sprintf("key %d", primary))))
	})

	It("follow the spec of the object until they are set", Label("ENV-01"), func(ctx SpecContext) {
		_, _, err := e.Create(ctx, thread.NewThread{Thread: store.Thread{ID: "t", Namespace: "default", Agent: "a"},
			Env: []thread.SpecEnv{{Name: "A", Value: "first", Entry: "a1", Version: "1"}, {Name: "B", Value: "b", Type: store.EnvText, Entry: "b1"}}})
		Expect(err).NotTo(HaveOccurred())
		st := e.open(ctx, "t")
		follow := func(spec ...thread.SpecEnv) {
			GinkgoHelper()
			t, err := st.Info(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(e.ApplySpecEnv(ctx, t, spec)).To(Succeed())
		}
		Expect(value(ctx, st, "A")).To(Equal("first secret thread"))
		Expect(value(ctx, st, "B")).To(Equal("b text thread"))
		follow(thread.SpecEnv{Name: "A", Value: "second", Entry: "a1", Version: "2"})
		Expect(value(ctx, st, "A")).To(Equal("second secret thread"), "the value that it refers to has changed")
		_, err = st.EnvValue(ctx, "B")
		Expect(err).To(MatchError(thread.ErrEnvUnknown), "its entry is gone")
		Expect(st.SetEnv(ctx, "A", "mine", "")).To(Succeed())
		follow(thread.SpecEnv{Name: "A", Value: "third", Entry: "a1", Version: "3"})
		Expect(value(ctx, st, "A")).To(Equal("mine secret thread"), "set since")
		follow(thread.SpecEnv{Name: "A", Value: "fourth", Entry: "a2", Version: "3"})
		Expect(value(ctx, st, "A")).To(Equal("fourth secret thread"), "another entry")
		Expect(st.SetEnv(ctx, "A", "mine", "")).To(Succeed())
		follow()
		Expect(value(ctx, st, "A")).To(Equal("mine secret thread"), "set, and no entry")
	})

	It("that are required and missing are named", Label("ENV-06"), func(ctx SpecContext) {
		st := e.create(ctx, "t")
		below.Declared = []thread.EnvDeclaration{{Name: "A", Required: true, Scoped: true}, {Name: "B", Required: true}, {Name: "C"}}
		below.Values = []thread.EnvValue{{Name: "B", Value: "there-is-b", Type: store.EnvSecret, Source: thread.EnvFromAgent}}
		t, err := st.Info(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(e.LoadEnv(ctx, t)).To(Equal([]string{"A"}))
		Expect(secrets.Text("default", "there-is-b")).To(Equal("[redacted]"))
		Expect(st.PendingEnv(ctx)).To(Equal([]thread.EnvDeclaration{{Name: "A", Required: true, Scoped: true}}))
		Expect(st.SetEnv(ctx, "A", "", "")).To(Succeed())
		Expect(st.PendingEnv(ctx)).To(BeEmpty())
		Expect(e.store.Apply(ctx, "t", nil, &store.PutRun{Run: store.Run{ID: "r", Status: store.RunWaiting, Reason: "EnvMissing"}})).To(Succeed())
		Expect(e.WakeEnvWaiters(ctx, "other")).To(Succeed())
		Expect(e.store.Inbox(ctx, "t")).To(BeEmpty())
		Expect(e.WakeEnvWaiters(ctx, "")).To(Succeed())
		Expect(e.store.Inbox(ctx, "t")).To(HaveLen(1))
		Expect(e.EnvWaiterNamespaces(ctx)).To(Equal([]string{"default"}))
	})
})
