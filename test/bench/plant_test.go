package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

// plantedAt is how many objects one transaction plants. etcd refuses more than 128 operations.
const plantedAt = 100

// plantLike makes n objects by writing them where the API server keeps them. To create 100,000 through the API server takes it half an hour of
// two processors, of which nothing is ours. They are copies of what is stored of an object, each with its own UID and number; edit changes
// the i-th copy and returns its name. The API server and its watchers see them as they see all others. plantLike returns how long the API
// server took, after the last write, until its own cache had them all.
func plantLike(ctx context.Context, c *harness.Cluster, resource string, like client.Object, n int, edit func(i int, meta, stored map[string]any) (name string)) time.Duration {
	GinkgoHelper()
	var last int64 // the revision of the last write
	etcd := etcdOf(c)
	defer func() { _ = etcd.Close() }()
	folder := "/registry/skein.dev/" + resource + "/" + like.GetNamespace() + "/"
	r, err := etcd.Get(ctx, folder+like.GetName())
	Expect(err).NotTo(HaveOccurred())
	Expect(r.Kvs).To(HaveLen(1))
	var puts []clientv3.Op
	flush := func() {
		r, err := etcd.Txn(ctx).Then(puts...).Commit()
		Expect(err).NotTo(HaveOccurred())
		puts, last = nil, r.Header.Revision
	}
	for i := range n {
		var stored map[string]any
		Expect(json.Unmarshal(r.Kvs[0].Value, &stored)).To(Succeed())
		meta := stored["metadata"].(map[string]any)
		meta["uid"] = uuid.NewString()
		name := edit(i, meta, stored)
		meta["name"] = name
		data, err := json.Marshal(stored)
		Expect(err).NotTo(HaveOccurred())
		if puts = append(puts, clientv3.OpPut(folder+name, string(data))); len(puts) == plantedAt {
			flush()
		}
	}
	if len(puts) > 0 {
		flush()
	}
	return timed(func() {
		kind, err := c.Client.GroupVersionKindFor(like)
		Expect(err).NotTo(HaveOccurred())
		one := &metav1.PartialObjectMetadataList{}
		one.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		Eventually(ctx, func() error { // a request waits for 3 s at the most
			return c.Client.List(ctx, one, client.InNamespace(like.GetNamespace()), client.MatchingFields{metav1.ObjectNameField: like.GetName()},
				&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: strconv.FormatInt(last, 10), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}})
		}).WithTimeout(5 * time.Minute).Should(Succeed())
		Expect(one.Items).To(HaveLen(1))
	})
}

// plant makes n effects. The first is created, and the others are planted like it.
func (b *effectBench) plant(ctx context.Context, n int, object func(i int) *skeinv1.ScheduledEffect) {
	GinkgoHelper()
	first := object(0)
	create(ctx, b.cluster, first)
	plantLike(ctx, b.cluster, "scheduledeffects", first, n-1, func(i int, meta, stored map[string]any) string {
		o := object(i + 1)
		meta["labels"], meta["annotations"], meta["ownerReferences"] = o.Labels, o.Annotations, o.OwnerReferences
		spec := stored["spec"].(map[string]any)
		spec["threadRef"], spec["args"] = o.Spec.ThreadRef, o.Spec.Args
		return o.Name
	})
}

// etcdOf returns a client of the cluster's etcd.
func etcdOf(cluster *harness.Cluster) *clientv3.Client {
	GinkgoHelper()
	dir := filepath.Dir(cluster.Kubeconfig)
	data, err := os.ReadFile(filepath.Join(dir, "state.json"))
	Expect(err).NotTo(HaveOccurred())
	var state struct{ EtcdPort int }
	Expect(json.Unmarshal(data, &state)).To(Succeed())
	pki := func(name string) string { return filepath.Join(dir, "pki", name) }
	tls, err := transport.TLSInfo{CertFile: pki("etcd-client.crt"), KeyFile: pki("etcd-client.key"), TrustedCAFile: pki("etcd-ca.crt")}.ClientConfig()
	Expect(err).NotTo(HaveOccurred())
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{fmt.Sprintf("https://127.0.0.1:%d", state.EtcdPort)}, TLS: tls, DialTimeout: 30 * time.Second})
	Expect(err).NotTo(HaveOccurred())
	return c
}
