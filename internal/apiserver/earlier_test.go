package apiserver

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = Describe("Retained data of a namespace that was deleted", Label("THR-09", "THR-16"), func() {
	const (
		old  = "0190a4c2-7a1b-7c3d-8e4f-aabbccddeeff"
		here = "0190a4c2-7a1b-7c3d-8e4f-aabbccddee00"
		gone = "0190a4c2-7a1b-7c3d-8e4f-aabbccddee11"
	)
	var e *testEnv

	// keep creates a thread with a message and retains it for the namespace with a UID.
	keep := func(ctx context.Context, namespace, id, namespaceUID string) {
		GinkgoHelper()
		_, _, err := e.svc.Create(ctx, thread.NewThread{Thread: store.Thread{ID: id, Namespace: namespace, Name: "keep", Agent: "helper", UserID: "ada", TaskID: "t"}})
		Expect(err).NotTo(HaveOccurred())
		st, err := e.svc.Open(ctx, id)
		Expect(err).NotTo(HaveOccurred())
		_, err = st.Inject(ctx, thread.NewMessage{Role: store.RoleUser, Content: ptr.To("remember me")})
		Expect(err).NotTo(HaveOccurred())
		Expect(e.svc.Store().Apply(ctx, id, nil, &store.Retain{NamespaceUID: namespaceUID})).To(Succeed())
	}
	hits := func(c *runtimeclient.Client, o runtimeclient.SearchOptions) []string {
		GinkgoHelper()
		list, err := c.Search(context.Background(), "remember", o)
		Expect(err).NotTo(HaveOccurred())
		Expect(list.HasMore).To(BeFalse(), "nor does it count")
		ids := []string{}
		for _, h := range list.Hits {
			ids = append(ids, h.ThreadID)
		}
		return ids
	}
	listed := func(namespace string, o runtimeclient.HistoryOptions) []string {
		GinkgoHelper()
		list, err := e.client().History(context.Background(), namespace, o)
		Expect(err).NotTo(HaveOccurred())
		ids := []string{}
		for _, item := range list.Items {
			ids = append(ids, item.ThreadID)
		}
		return ids
	}

	BeforeEach(func(ctx SpecContext) {
		e = newEnv(func(o *Options) { o.LiveReader = o.Reader })
		keep(ctx, "door", old, "uid-1")
		keep(ctx, "door", here, "uid-2")
		keep(ctx, "gone", gone, "uid-3")
		Expect(e.kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "door", UID: types.UID("uid-2")}})).To(Succeed())
		Expect(e.kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other", UID: types.UID("uid-4")}})).To(Succeed())
	})

	It("is not found by a search", func() {
		for _, o := range []runtimeclient.SearchOptions{
			{Namespace: "door"}, {}, {Namespace: "door", Thread: "keep"}, {Thread: "keep"}, {Page: runtimeclient.Page{Limit: 1}},
		} {
			Expect(hits(e.client(), o)).To(Equal([]string{here}), "%+v", o)
		}
		for _, o := range []runtimeclient.SearchOptions{{Namespace: "door", Thread: old}, {Thread: old}, {Thread: gone}} {
			Expect(hits(e.client(), o)).To(BeEmpty(), "%+v", o)
		}
		bob := e.as("bob", "list searches/ /", "get threads/messages door/")
		Expect(hits(bob, runtimeclient.SearchOptions{})).To(Equal([]string{here}))
	})

	It("is not in a list, under any filter", func() {
		for _, o := range []runtimeclient.HistoryOptions{{}, {User: "ada"}, {Task: "t"}, {Agent: "helper"}, {Archived: "all"}, {Limit: 1}} {
			Expect(listed("door", o)).To(Equal([]string{here}), "%+v", o)
			Expect(listed("", o)).To(Equal([]string{here}), "%+v", o)
		}
	})

	It("is not in a watch of a list", func(ctx SpecContext) {
		watch := func(path string) *bufio.Reader {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base+"/apis/runtime.skein.dev/v1alpha1"+path+"history?watch=true", nil)
			Expect(err).NotTo(HaveOccurred())
			req.Header.Set("Authorization", "Bearer alice")
			resp, err := e.http.Do(req)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(resp.Body.Close)
			Expect(resp.StatusCode).To(Equal(http.StatusOK))
			return bufio.NewReader(resp.Body)
		}
		const late, later = "0190a4c2-7a1b-7c3d-8e4f-aabbccddee22", "0190a4c2-7a1b-7c3d-8e4f-aabbccddee33"
		e.threadOf("door", "late", late, false)
		e.threadOf("gone", "later", later, false)
		one, all := watch("/namespaces/door/"), watch("/")
		for id, uid := range map[string]string{late: "uid-1", later: "uid-3"} {
			Expect(e.svc.Store().Apply(ctx, id, nil, &store.Destroy{Reason: store.DestroyedExplicit}, &store.Retain{NamespaceUID: uid})).To(Succeed())
		}
		e.threadOf("door", "last", "0190a4c2-7a1b-7c3d-8e4f-aabbccddee44", true)
		for _, r := range []*bufio.Reader{one, all} {
			for last := false; !last; {
				var list runtimev1.ThreadHistoryList
				Expect(json.Unmarshal([]byte(nextData(r)), &list)).To(Succeed())
				for _, item := range list.Items {
					Expect(item.ThreadID).NotTo(Or(Equal(late), Equal(later)))
					last = last || item.Name == "last"
				}
			}
		}
	}, NodeTimeout(patience))

	It("hides no data of the present namespace behind it in a list of retained threads", func(ctx SpecContext) {
		const first, second = "0190a4c2-7a1b-7c3d-8e4f-000000000005", "0190a4c2-7a1b-7c3d-8e4f-000000000007"
		for _, end := range []string{"1", "2", "3", "4", "6"} {
			keep(ctx, "door", "0190a4c2-7a1b-7c3d-8e4f-00000000000"+end, "uid-1")
		}
		keep(ctx, "door", first, "uid-2")
		keep(ctx, "door", second, "uid-2")
		for _, limit := range []int{1, 2, 3, 4, 1000} {
			var ids []string
			for after, more := "", true; more; after = ids[len(ids)-1] {
				page, err := e.client().Retained(ctx, "door", after, limit)
				Expect(err).NotTo(HaveOccurred())
				Expect(page.Threads).NotTo(BeEmpty(), "limit %d: the next page begins behind the last thread", limit)
				Expect(len(page.Threads)).To(BeNumerically("<=", limit))
				for _, t := range page.Threads {
					ids = append(ids, t.ThreadID)
				}
				more = page.HasMore
			}
			Expect(ids).To(Equal([]string{first, second, here}), "limit %d", limit)
		}
	}, NodeTimeout(patience))

	It("is not looked up", func(ctx SpecContext) {
		for _, id := range []string{old, "T-" + old, "aabbccddeeff", gone, "aabbccddee11"} {
			_, err := e.client().Lookup(ctx, id)
			Expect(apierrors.IsNotFound(err)).To(BeTrue(), "%s: %v", id, err)
		}
		for _, id := range []string{here, "keep"} {
			Expect(e.client().Lookup(ctx, id)).To(HaveField("ThreadID", here), id)
		}
	})

	It("is there for those who may read all namespaces and name one that is gone", func(ctx SpecContext) {
		Expect(hits(e.client(), runtimeclient.SearchOptions{Namespace: "gone"})).To(Equal([]string{gone}))
		Expect(listed("gone", runtimeclient.HistoryOptions{})).To(Equal([]string{gone}))
		Expect(e.client().Thread("gone", gone).Get(ctx)).To(HaveField("ThreadID", gone))
	})
})
