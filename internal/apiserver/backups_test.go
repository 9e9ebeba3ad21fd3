package apiserver

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
)

// stored is the answer of GET backups.
type stored struct {
	rows     [][]byte
	contents map[string][]byte
	summary  runtimev1.BackupSummary
}

func readBackup(ctx context.Context, c *runtimeclient.Client) *stored {
	GinkgoHelper()
	body, err := c.Backup(ctx, "ns")
	Expect(err).NotTo(HaveOccurred())
	defer body.Close()
	out := &stored{contents: map[string][]byte{}}
	for in := tar.NewReader(body); ; {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		Expect(err).NotTo(HaveOccurred())
		data, err := io.ReadAll(in)
		Expect(err).NotTo(HaveOccurred())
		switch digest, contents := strings.CutPrefix(head.Name, runtimev1.BackupContentsPrefix); {
		case contents:
			out.contents[digest] = data
		case head.Name == runtimev1.BackupSummaryFile:
			Expect(json.Unmarshal(data, &out.summary)).To(Succeed())
		default:
			out.rows = append(out.rows, data)
		}
	}
}

var _ = Describe("backups", Label("K8S-09"), func() {
	const asJSON = "application/json"
	const root = "/apis/runtime.skein.dev/v1alpha1/namespaces/ns/"

	It("are restored into another installation, also from parts that arrive twice or at once", func(ctx SpecContext) {
		from, to := newEnv(), newEnv()
		st, t := from.thread("hello")
		_, err := t.WriteFile(ctx, "/a.txt", strings.NewReader("contents"), runtimeclient.WriteFileOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = t.WriteFile(ctx, "/empty", strings.NewReader(""), runtimeclient.WriteFileOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(t.SetValue(ctx, "k", 1)).To(Succeed())
		b := readBackup(ctx, from.client())
		Expect(b.summary.Rows).To(HaveKeyWithValue("thread", int64(1)))
		Expect(b.summary.Contents).To(Equal(2))

		_, err = from.client().Restore("ns", "b1").Begin(ctx, runtimev1.RestorePlan{Schema: b.summary.Schema, Threads: []string{st.ID()}})
		Expect(apierrors.IsConflict(err)).To(BeTrue())
		Expect(err).To(MatchError(And(ContainSubstring(st.ID()), ContainSubstring("nothing was restored"))))

		r := to.client().Restore("ns", "b1")
		plan := runtimev1.RestorePlan{Schema: b.summary.Schema, Threads: []string{st.ID()}}
		Expect(r.Begin(ctx, plan)).To(HaveField("Restored", int64(0)))
		for digest, data := range b.contents {
			Expect(apierrors.IsInvalid(r.Contents(ctx, digest, int64(len(data)), bytes.NewReader(data)))).To(BeTrue(), "rows come first")
		}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				defer GinkgoRecover()
				for _, rows := range b.rows {
					Expect(r.Rows(ctx, rows)).To(Succeed())
				}
			})
		}
		all.Wait()
		Expect(r.Begin(ctx, plan)).To(HaveField("Staged", int64(1)))
		_, err = to.client().Thread("ns", st.ID()).Get(ctx)
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "nothing is visible yet")
		err = r.Finish(ctx, b.summary.Rows)
		Expect(err).To(MatchError(ContainSubstring("the contents of files are missing")))
		for digest, data := range b.contents {
			Expect(r.Contents(ctx, digest, int64(len(data)+1), bytes.NewReader(append(data, 'x')))).To(MatchError(ContainSubstring("the backup is damaged")))
			for range 2 {
				Expect(r.Contents(ctx, digest, int64(len(data)), bytes.NewReader(data))).To(Succeed())
			}
		}
		all = sync.WaitGroup{}
		for range 20 {
			all.Go(func() {
				defer GinkgoRecover()
				Expect(r.Finish(ctx, b.summary.Rows)).To(Succeed())
			})
		}
		all.Wait()
		Expect(r.Begin(ctx, plan)).To(HaveField("Restored", int64(1)))
		for _, rows := range b.rows {
			err := r.Rows(ctx, rows)
			Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(ContainSubstring("has restored this backup into the namespace meanwhile")))
		}
		effect := func(namespace, uid string) {
			Expect(to.kube.Create(ctx, &skeinv1.ScheduledEffect{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "e", UID: types.UID(uid)}})).To(Succeed())
		}
		effect("ns", "own")
		effect("other", "foreign")
		Expect(r.Effects(ctx, map[string]string{"a": "own"})).To(Succeed())
		Expect(r.Effects(ctx, nil)).To(Succeed())
		for _, uid := range []string{"foreign", "none", ""} {
			err := r.Effects(ctx, map[string]string{"a": "own", "b": uid})
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(ContainSubstring("no ScheduledEffect of the namespace has the UID %q", uid)))
		}
		Expect(to.svc.Store().Apply(ctx, st.ID(), nil, &store.Adopt{ObjectUID: "new", Name: "hello", Agent: "helper"})).To(Succeed())
		again := to.client().Thread("ns", st.ID())
		Expect(again.Value(ctx, "k")).To(BeEquivalentTo("1"))
		for path, want := range map[string]string{"/a.txt": "contents", "/empty": ""} {
			file, err := again.ReadFile(ctx, path)
			Expect(err).NotTo(HaveOccurred())
			data, err := io.ReadAll(file)
			Expect(err).NotTo(HaveOccurred())
			Expect(string(data)).To(Equal(want))
		}
	})

	It("need their right, and say what is wrong", func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		for method, paths := range map[string][]string{
			http.MethodGet: {"backups", "orphans"}, http.MethodPut: {"restores/b/contents/x"}, http.MethodDelete: {"restores/b"},
			http.MethodPost: {"restores", "restores/b/rows", "restores/b/finish", "restores/b/effects", "orphans/x"},
		} {
			for _, path := range paths {
				Expect(e.refused("bob", method, root+path, `{}`, asJSON).Reason).To(Equal(metav1.StatusReasonForbidden), path)
			}
		}
		invalid := func(method, path, body, text string) {
			GinkgoHelper()
			Expect(e.refused("alice", method, root+path, body, asJSON).Message).To(ContainSubstring(text))
		}
		invalid(http.MethodPost, "restores", `{"backup":"b","schema":9999}`, "a newer release made the backup")
		invalid(http.MethodPost, "restores", `{"backup":"b","schema":27}`, "restore it with the release that made it")
		invalid(http.MethodPost, "restores", `{"backup":"b","schema":28,"keyIDs":[7]}`, "sealed under keys that this installation does not have: [7]")
		invalid(http.MethodPost, "restores", `{"backup":"a/b","schema":28}`, "is not the id of a backup")
		invalid(http.MethodPost, "restores", ``, "empty")
		invalid(http.MethodPost, "restores/b/rows", `{"table":`, "line 1 of the rows is not JSON")
		invalid(http.MethodPost, "restores/b/rows", `{"table":"nothing","row":{}}`, "which this release does not have")
		invalid(http.MethodPost, "restores/b/finish", `{"rows":{"thread":2}}`, "0 rows of table thread have arrived of 2")
		invalid(http.MethodPut, "restores/b/contents/zz", `x`, "is not a SHA-256")
		invalid(http.MethodGet, "backups?what=1", ``, "unknown parameter")
		Expect(e.client().Restore("ns", "b").Abandon(ctx)).To(Succeed())

		rec, err := t.Get(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(e.refused("alice", http.MethodPost, root+"orphans/x", `{}`, asJSON).Reason).To(Equal(metav1.StatusReasonNotFound))
		Expect(apierrors.IsConflict(e.client().RetainOrphan(ctx, "ns", rec.ThreadID))).To(BeTrue(), "its object is there")
		Expect(e.kube.Delete(ctx, &skeinv1.Thread{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "hello"}})).To(Succeed())
		page, err := e.client().Orphans(ctx, "ns", "", 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(page.Threads).To(ConsistOf(HaveField("ThreadID", rec.ThreadID)))
		for range 2 {
			Expect(e.client().RetainOrphan(ctx, "ns", rec.ThreadID)).To(Succeed())
		}
		Expect(e.client().Retained(ctx, "ns", "", 0)).To(HaveField("Threads", HaveLen(1)))
		Expect(e.client().Orphans(ctx, "ns", "", 0)).To(HaveField("Threads", BeEmpty()))
	})
})
