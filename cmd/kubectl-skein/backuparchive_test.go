package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/envkeys"
)

// archived writes a backup of a namespace with files, by name.
func archived(name, namespace string, summary *runtimev1.BackupSummary, files map[string]string) {
	GinkgoHelper()
	f, err := os.Create(name)
	Expect(err).NotTo(HaveOccurred())
	zip := gzip.NewWriter(f)
	out := newDigestedTar(tar.NewWriter(zip), time.Now())
	for _, file := range slices.Sorted(maps.Keys(files)) {
		Expect(out.file(file, []byte(files[file]))).To(Succeed())
	}
	manifest, err := json.Marshal(backupManifest{Format: backupFormat, ID: "b", Namespaces: []backupNamespace{{Name: namespace, Summary: summary}}, Digest: out.digest()})
	Expect(err).NotTo(HaveOccurred())
	Expect(out.file(manifestFile, manifest)).To(Succeed())
	Expect(out.tar.Close()).To(Succeed())
	Expect(zip.Close()).To(Succeed())
	Expect(f.Close()).To(Succeed())
}

var _ = Describe("a backup that is read", Label("K8S-09"), func() {
	It("is not whole without the summary of a namespace, however right its digest is", func() {
		name := filepath.Join(GinkgoT().TempDir(), "b.tar.gz")
		archived(name, "demo", nil, nil)
		_, err := openBackup(name, "")
		Expect(err).To(MatchError(errNotWhole))
	})

	It("is said to be damaged, whichever of its bytes is another", func() {
		name := filepath.Join(GinkgoT().TempDir(), "b.tar.gz")
		random := rand.New(rand.NewPCG(1, 2))
		text := make([]byte, 2000)
		for i := range text {
			text[i] = "abcdefgh"[random.IntN(8)]
		}
		archived(name, "demo", &runtimev1.BackupSummary{}, map[string]string{"a": string(text), "namespaces/demo/objects/b": string(text[1000:])})
		whole, err := os.ReadFile(name)
		Expect(err).NotTo(HaveOccurred())
		const header = 10 // of gzip, which has times and names that nothing reads
		for i := header; i < len(whole); i++ {
			broken := slices.Clone(whole)
			broken[i] ^= 1 << random.IntN(8)
			Expect(os.WriteFile(name, broken, 0o600)).To(Succeed())
			if b, err := openBackup(name, ""); err != nil {
				Expect(err).To(MatchError(ContainSubstring("damaged")), "byte %d", i)
			} else { // few bits say nothing
				Expect(b.objects).To(Equal(map[string]map[string][]byte{"demo": {"b": text[1000:]}}), "byte %d", i)
			}
		}
	})

	It("is read again as it was, or noticed to be another", func() {
		name := filepath.Join(GinkgoT().TempDir(), "b.tar.gz")
		rows := "namespaces/demo/data/" + runtimev1.BackupRowsPrefix + "1"
		archived(name, "demo", &runtimev1.BackupSummary{}, map[string]string{"a": "not read", rows: "{}\n"})
		b, err := openBackup(name, "")
		Expect(err).NotTo(HaveOccurred())
		var sent string
		send := func(file string, _ int64, in io.Reader) error {
			if file != rows {
				return nil
			}
			data, err := io.ReadAll(in)
			sent += string(data)
			return err
		}
		Expect(b.unchanged(send)).To(Succeed())
		Expect(sent).To(Equal("{}\n"))
		for _, other := range []map[string]string{{"a": "not read", rows: "[]\n"}, {"a": "changed, and not read either", rows: "{}\n"}, {rows: "{}\n"}} {
			archived(name, "demo", &runtimev1.BackupSummary{}, other)
			Expect(b.unchanged(send)).To(MatchError(errChanged))
		}
	})
})

var _ = Describe("kubectl skein restore", Label("K8S-09", "K8S-05"), func() {
	It("writes no keys while something is in the way of a namespace", func(ctx SpecContext) {
		ns, err := env.Namespace(ctx)
		Expect(err).NotTo(HaveOccurred())
		folder := GinkgoT().TempDir()
		file, passphrase := filepath.Join(folder, "b.tar.gz"), filepath.Join(folder, "passphrase")
		Expect(os.WriteFile(passphrase, []byte("correct horse battery\n"), 0o600)).To(Succeed())
		own, err := envkeys.Generate()
		Expect(err).NotTo(HaveOccurred())
		keys, err := envkeys.Wrap(own, []byte("correct horse battery"))
		Expect(err).NotTo(HaveOccurred())
		archived(file, "nowhere", &runtimev1.BackupSummary{}, map[string]string{keysFile: string(keys)})
		got := command{ctx: ctx, ns: ns}.run("restore", file, "--passphrase-file", passphrase, "--system-namespace", ns, "--secret", "keys")
		Expect(got.err).To(ContainSubstring("namespace nowhere: it does not exist"))
		Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "keys"}, &corev1.Secret{})).To(Satisfy(apierrors.IsNotFound))
	})
})
