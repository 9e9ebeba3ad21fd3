package apiserver

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

var _ = Describe("files", func() {
	It("are written, read, listed and deleted", func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		rec, err := t.WriteFile(ctx, "/data/größe & more?.csv", strings.NewReader("a,b\n1,2\n"), runtimeclient.WriteFileOptions{
			MimeType: "text/csv; charset=utf-8", Metadata: map[string]any{"rows": 1},
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(rec).To(And(HaveField("Path", "/data/größe & more?.csv"), HaveField("Name", "größe & more?.csv"),
			HaveField("MimeType", "text/csv; charset=utf-8"), HaveField("Size", int64(8)), HaveField("Metadata", MatchJSON(`{"rows":1}`))))
		rc, err := t.ReadFile(ctx, rec.Path)
		Expect(err).NotTo(HaveOccurred())
		Expect(io.ReadAll(rc)).To(BeEquivalentTo("a,b\n1,2\n"))
		Expect(rc.Close()).To(Succeed())
		Expect(t.ReadFile(ctx, "/nowhere")).To(BeNil())

		_, err = t.MakeDir(ctx, "/empty")
		Expect(err).NotTo(HaveOccurred())
		paths := func(o runtimeclient.FileOptions) (out []string) {
			l, err := t.Files(ctx, o)
			Expect(err).NotTo(HaveOccurred())
			for _, f := range l.Files {
				out = append(out, f.Path)
			}
			return out
		}
		Expect(paths(runtimeclient.FileOptions{})).To(Equal([]string{"/data", "/empty"}))
		Expect(paths(runtimeclient.FileOptions{Prefix: "/data"})).To(Equal([]string{rec.Path}))
		Expect(paths(runtimeclient.FileOptions{Recursive: true})).To(Equal([]string{"/data", rec.Path, "/empty"}))
		Expect(paths(runtimeclient.FileOptions{Glob: "*.csv"})).To(Equal([]string{rec.Path}))
		first, err := t.Files(ctx, runtimeclient.FileOptions{Page: runtimeclient.Page{Limit: 1}})
		Expect(err).NotTo(HaveOccurred())
		Expect(first.Files).To(HaveLen(1))
		Expect(first.HasMore).To(BeTrue())

		err = t.DeleteFile(ctx, "/data")
		Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("not empty")))
		Expect(t.DeleteFile(ctx, rec.Path)).To(Succeed())
		Expect(t.DeleteFile(ctx, "/data")).To(Succeed())
		Expect(apierrors.IsNotFound(t.DeleteFile(ctx, "/data"))).To(BeTrue())
	})

	It("carry their record and can be read in part", func() {
		e := newEnv()
		e.thread("hello")
		resp, _ := e.do("PUT", at("hello", "/files/a.txt"), strings.NewReader("0123456789"), "Content-Type", "text/plain")
		Expect(resp.StatusCode).To(Equal(http.StatusCreated))
		resp, body := e.do("GET", at("hello", "/files/a.txt"), nil)
		Expect(body).To(Equal("0123456789"))
		Expect(resp.Header).To(And(HaveKeyWithValue("Content-Type", []string{"text/plain"}), HaveKeyWithValue("X-Content-Type-Options", []string{"nosniff"})))
		Expect(resp.Header.Get(runtimev1.HeaderFileRecord)).To(ContainSubstring(`"path":"/a.txt"`))
		resp, body = e.do("GET", at("hello", "/files/a.txt"), nil, "Range", "bytes=4-6")
		Expect(resp.StatusCode).To(Equal(http.StatusPartialContent))
		Expect(body).To(Equal("456"))
		resp, body = e.do("HEAD", at("hello", "/files/a.txt"), nil)
		Expect(resp.StatusCode).To(Equal(http.StatusOK))
		Expect(resp.ContentLength).To(Equal(int64(10)))
		Expect(body).To(BeEmpty())
	})

	It("are saved by browsers, and never run as pages of the API", Label("FIL-01"), func() {
		e := newEnv()
		e.thread("hello")
		for name, want := range map[string]string{"page.html": "attachment; filename=page.html", "s%C3%A4tze%22.svg": "attachment; filename*=utf-8''s%C3%A4tze%22.svg"} {
			resp, _ := e.do("PUT", at("hello", "/files/"+name), strings.NewReader("<script>alert(1)</script>"), "Content-Type", "text/html")
			Expect(resp.StatusCode).To(Equal(http.StatusCreated))
			for _, query := range []string{"", "?chunked=true"} {
				resp, _ = e.do("GET", at("hello", "/files/"+name+query), nil)
				Expect(resp.Header.Get("Content-Security-Policy")).To(Equal("default-src 'none'; sandbox"))
				Expect(resp.Header.Get("X-Content-Type-Options")).To(Equal("nosniff"))
				Expect(resp.Header.Get("Content-Disposition")).To(HavePrefix("attachment"))
			}
			resp, _ = e.do("GET", at("hello", "/files/"+name), nil)
			Expect(resp.Header.Get("Content-Disposition")).To(Equal(want))
		}
		resp, _ := e.do("GET", at("hello", "/export"), nil)
		Expect(resp.Header.Get("Content-Security-Policy")).To(ContainSubstring("sandbox"))
	})

	DescribeTable("refuses paths that lead elsewhere",
		func(method, rest, field string) {
			e := newEnv()
			e.thread("hello")
			resp, _ := e.do("PUT", at("hello", "/files/dir/f"), strings.NewReader("x"))
			Expect(resp.StatusCode).To(Equal(http.StatusCreated))
			s := e.status(method, at("hello", "/files/"+rest), "x")
			Expect(s.Reason).To(Equal(metav1.StatusReasonInvalid), s.Message)
			Expect(s.Details.Causes).To(ContainElement(HaveField("Field", field)))
		},
		Entry("up", "PUT", "a/%2e%2e/%2e%2e/b", "path"),
		Entry("up, reading", "GET", "%2e%2e/x", "path"),
		Entry("up, deleting", "DELETE", "a/%2e%2e", "path"),
		Entry("NUL", "PUT", "a%00b", "path"),
		Entry("no UTF-8", "PUT", "a%ffb", "path"),
		Entry("too long", "PUT", strings.Repeat("a", 300), "path"),
		Entry("a folder, reading", "GET", "dir", "path"),
		Entry("a folder, writing", "PUT", "dir", "path"),
		Entry("below a file", "PUT", "dir/f/g", "path"),
	)

	It("takes no part of a file for the whole", func() {
		e := newEnv()
		e.thread("hello")
		conn := e.dial()
		fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice\r\nContent-Length: 100\r\n\r\nonly this", at("hello", "/files/cut.txt"))
		Expect(conn.(interface{ CloseWrite() error }).CloseWrite()).To(Succeed())
		answer, _ := io.ReadAll(conn)
		Expect(string(answer)).To(ContainSubstring("400 Bad Request"))
		Expect(string(answer)).To(ContainSubstring("send it again"))
		e.status("GET", at("hello", "/files/cut.txt"), "")
	})

	It("ends an upload that comes to a stop", func() {
		e := newEnv(func(o *Options) { o.transferTimeout = 100 * time.Millisecond })
		e.thread("hello")
		conn := e.dial()
		fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer alice\r\nContent-Length: 100\r\n\r\nonly this", at("hello", "/files/cut.txt"))
		answer, _ := io.ReadAll(conn)
		Expect(string(answer)).To(ContainSubstring("400 Bad Request"))
	})

	It("streams both ways in bounded memory", Label("FIL-03"), func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		const size = 256 << 20
		before := heap()
		sent := sha256.New()
		_, err := t.WriteFile(ctx, "/big.bin", io.TeeReader(io.LimitReader(&noise{}, size), sent), runtimeclient.WriteFileOptions{})
		Expect(err).NotTo(HaveOccurred())
		rc, err := t.ReadFile(ctx, "/big.bin")
		Expect(err).NotTo(HaveOccurred())
		defer rc.Close()
		got := sha256.New()
		n, err := io.Copy(got, rc)
		Expect(err).NotTo(HaveOccurred())
		Expect(n).To(Equal(int64(size)))
		Expect(got.Sum(nil)).To(Equal(sent.Sum(nil)))
		Expect(heap()-before).To(BeNumerically("<", size*3/4), "which has what waits to be collected besides: the whole file would not fit")
	}, SpecTimeout(5*patience))
})

// dial opens a connection for malformed HTTP/1.1.
func (e *testEnv) dial() net.Conn {
	GinkgoHelper()
	cfg := e.http.Transport.(*http.Transport).TLSClientConfig.Clone()
	cfg.NextProtos = []string{"http/1.1"}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(e.base, "https://"), cfg)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { _ = conn.Close() }) // the server may have closed it first
	Expect(conn.SetDeadline(time.Now().Add(patience))).To(Succeed())
	return conn
}

// heap returns the size of the process's heap in the system.
func heap() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapSys)
}

// noise is an endless stream that does not compress well.
type noise struct{ n byte }

func (z *noise) Read(p []byte) (int, error) {
	for i := range p {
		z.n = z.n*5 + 1
		p[i] = z.n ^ byte(i>>8)
	}
	return len(p), nil
}

var _ = Describe("key-values", func() {
	It("keeps any JSON value", Label("KVS-01"), func(ctx SpecContext) {
		e := newEnv()
		_, t := e.thread("hello")
		Expect(t.Value(ctx, "k")).To(BeNil())
		Expect(t.SetValue(ctx, "a/b c", map[string]any{"x": []int{1}})).To(Succeed())
		Expect(t.Value(ctx, "a/b c")).To(MatchJSON(`{"x":[1]}`))
		Expect(t.SetValue(ctx, "a/b c", nil)).To(Succeed())
		Expect(t.Value(ctx, "a/b c")).To(BeNil())
		Expect(t.SetValue(ctx, "", 1)).NotTo(Succeed())
		s := e.status("PUT", at("hello", "/kv/k"), "{")
		Expect(s.Reason).To(Equal(metav1.StatusReasonInvalid))
		s = e.status("PUT", at("hello", "/kv/k"), "")
		Expect(s.Reason).To(Equal(metav1.StatusReasonBadRequest))
		_, body := e.do("GET", at("hello", "/kv/k"), nil)
		Expect(body).To(MatchJSON("null"))
		_, _ = e.do("PUT", at("hello", "/kv/k"), bytes.NewBufferString(`5`))
		_, _ = e.do("PUT", at("hello", "/kv/k"), bytes.NewBufferString(`null`))
		Expect(t.Value(ctx, "k")).To(BeNil(), "null deletes")
	})
})
