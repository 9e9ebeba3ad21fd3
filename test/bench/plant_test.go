package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// plantedAt is how many objects one transaction plants. etcd refuses more than 128 operations.
const plantedAt = 100

// plant makes n objects by writing them where the API server keeps them. To create 100,000 through the API server takes it half an hour of two
// processors, of which nothing is ours. The first is created, and the others are copies of what was stored of it, each with its own name, UID
// and number. The API server and its watchers see them as they see all others.
func (b *effectBench) plant(ctx context.Context, n int, object func(i int) *skeinv1.ScheduledEffect) {
	GinkgoHelper()
	etcd := b.etcd()
	defer func() { _ = etcd.Close() }()
	first := object(0)
	create(ctx, b.cluster, first)
	const folder = "/registry/skein.dev/scheduledeffects/"
	r, err := etcd.Get(ctx, folder+b.ns+"/"+first.Name)
	Expect(err).NotTo(HaveOccurred())
	Expect(r.Kvs).To(HaveLen(1))
	var puts []clientv3.Op
	flush := func() {
		_, err := etcd.Txn(ctx).Then(puts...).Commit()
		Expect(err).NotTo(HaveOccurred())
		puts = nil
	}
	for i := 1; i < n; i++ {
		o := object(i)
		var stored map[string]any
		Expect(json.Unmarshal(r.Kvs[0].Value, &stored)).To(Succeed())
		meta, spec := stored["metadata"].(map[string]any), stored["spec"].(map[string]any)
		meta["name"], meta["uid"], meta["labels"], meta["annotations"], meta["ownerReferences"] = o.Name, uuid.NewString(), o.Labels, o.Annotations, o.OwnerReferences
		spec["threadRef"], spec["args"] = o.Spec.ThreadRef, o.Spec.Args
		data, err := json.Marshal(stored)
		Expect(err).NotTo(HaveOccurred())
		if puts = append(puts, clientv3.OpPut(folder+b.ns+"/"+o.Name, string(data))); len(puts) == plantedAt {
			flush()
		}
	}
	if len(puts) > 0 {
		flush()
	}
}

// etcd returns a client of the cluster's etcd.
func (b *effectBench) etcd() *clientv3.Client {
	GinkgoHelper()
	dir := filepath.Dir(b.cluster.Kubeconfig)
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
