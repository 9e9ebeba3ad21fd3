//go:build linux && (amd64 || arm64)

package client_test

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/sandboxtest"
)

var _ = Describe("Code of a gateway", Label("IDS-02", "IDS-06"), func() {
	open := func(ctx context.Context, source string, static map[string]any) sandbox.Isolate {
		GinkgoHelper()
		m, failed := compile.Compile("t.ts", source, sandbox.TypeScript)
		Expect(failed).To(BeNil())
		c := sandboxtest.Start(GinkgoT(), patiently).Dial(GinkgoT(), "thread-1")
		i, err := c.OpenIsolate(ctx, sandbox.IsolateRequest{Modules: map[string]sandbox.Module{"t": m}, Static: static})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(i.Close)
		return i
	}
	asks := map[string]any{"$ids": "1"}
	// Of an id, 100 characters reach the gateway.
	request := map[string]any{"method": "GET", "url": "http://door/ns/chat/v1/messages?q=1&q=2", "headers": map[string]any{"x-user-id": "Ada"}, "threadId": "thrd_b"}
	head := "import { createApp, getThreadProvider } from '@agentuity/runtime';\n"

	It("digests bytes as browsers do", func() {
		ctx := within(2 * patience)
		i := open(ctx, `export default async () => {
			const all = [];
			for (const name of ['SHA-1', 'sha-256', { name: 'SHA-384' }, 'SHA-512']) all.push(new Uint8Array(await crypto.subtle.digest(name, new TextEncoder().encode('hé').subarray(1))));
			all.push((await crypto.subtle.digest('SHA-256', new ArrayBuffer(0))).byteLength);
			for (const wrong of [() => crypto.subtle.digest('MD5', new Uint8Array(1)), () => crypto.subtle.digest('SHA-256', 'text' as any)]) {
				try { await wrong(); } catch (e: any) { all.push(e.name + ': ' + e.message); }
			}
			return all;
		}`, nil)
		text := []byte("hé")[1:]
		one, two, three, five := sha1.Sum(text), sha256.Sum256(text), sha512.Sum384(text), sha512.Sum512(text)
		Expect(i.Invoke(ctx, "1", "t", nil)).To(Equal([]any{one[:], two[:], three[:], five[:], 32.0,
			"NotSupportedError: MD5 is not available: use SHA-1, SHA-256, SHA-384 or SHA-512", "TypeError: digest takes bytes: encode a text with new TextEncoder().encode(text)"}))
	})

	It("is asked with what the request brings", func() {
		ctx := within(2 * patience)
		i := open(ctx, head+`
			getThreadProvider().setThreadIDProvider({ getThreadId: async (state, { req, get, var: v }) => {
				await new Promise((done) => setTimeout(done, 1));
				return JSON.stringify([state, req.method, req.path, req.query('q'), req.query('z'), req.queries('q'), req.header('X-User-ID'), req.header('cookie'), req.header(), get('threadId'), v]).slice(1, -1) + req.raw.headers.get('X-User-Id');
			} });
			await createApp({ setup: () => ({ a: 1 }) });`, asks)
		v, err := i.Invoke(ctx, "1", "t", request)
		Expect(err).NotTo(HaveOccurred())
		Expect(v).To(HaveKeyWithValue("id", HavePrefix(`{"a":1},"GET","/ns/chat/v1/messages","1",null,["1","2"],"Ada",null,{"x-user-id":"Ada"},"thrd_b"`)))
	})

	DescribeTable("may refuse or be wrong", func(source string, want any, says string) {
		ctx := within(2 * patience)
		v, err := open(ctx, head+source, asks).Invoke(ctx, "1", "t", request)
		if says != "" {
			Expect(err).To(MatchError(ContainSubstring(says)))
			return
		}
		Expect(err).NotTo(HaveOccurred())
		Expect(v).To(Equal(want))
	},
		Entry("an error with a status", "getThreadProvider().setThreadIDProvider({ getThreadId() { throw Object.assign(new Error('x'), { status: 403 }) } })", map[string]any{"refused": true}, ""),
		Entry("an error", "getThreadProvider().setThreadIDProvider({ getThreadId() { throw new Error('not today') } })", nil, "not today"),
		Entry("a number", "getThreadProvider().setThreadIDProvider({ getThreadId: () => 7 as any })", nil, "getThreadId gave number and not a string"),
		Entry("null", "getThreadProvider().setThreadIDProvider({ getThreadId: () => null as any })", nil, "getThreadId gave null"),
		Entry("no function", "getThreadProvider().setThreadIDProvider({} as any)", nil, "with the function getThreadId"),
		Entry("nothing set", "getThreadProvider()", nil, "the code sets no provider"),
	)

	It("is refused where a thread has its id already", func() {
		ctx := within(2 * patience)
		i := open(ctx, head+"getThreadProvider().setThreadIDProvider({ getThreadId: () => '' });\nexport default () => 1;", nil)
		_, err := i.Invoke(ctx, "1", "t", nil)
		Expect(err).To(MatchError(ContainSubstring("spec.idProvider.code")))
	})
})
