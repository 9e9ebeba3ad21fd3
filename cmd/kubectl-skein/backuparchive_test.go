package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("a backup that is read", Label("K8S-09"), func() {
	It("is not whole without the summary of a namespace, however right its digest is", func() {
		name := filepath.Join(GinkgoT().TempDir(), "b.tar.gz")
		f, err := os.Create(name)
		Expect(err).NotTo(HaveOccurred())
		zip := gzip.NewWriter(f)
		out := newDigestedTar(tar.NewWriter(zip), time.Now())
		manifest, err := json.Marshal(backupManifest{Format: backupFormat, ID: "b", Namespaces: []backupNamespace{{Name: "demo"}}, Digest: out.digest()})
		Expect(err).NotTo(HaveOccurred())
		Expect(out.file(manifestFile, manifest)).To(Succeed())
		Expect(out.tar.Close()).To(Succeed())
		Expect(zip.Close()).To(Succeed())
		Expect(f.Close()).To(Succeed())
		_, err = openBackup(name, "")
		Expect(err).To(MatchError(errNotWhole))
	})
})
