package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("The files of a thread", func() {
	It("are streams in code, too, as the guide has it", Label("FIL-01", "FIL-03", "TOL-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx, harness.CodeTool(ns, "measure", `
import { defineTool } from '@standardagents/builder';
export default defineTool({ description: 'measures', execute: async (state, args) => {
  let bytes = 0, last;
  for await (const chunk of (await state.readFileStream(args.path)) ?? []) {
    bytes += chunk.data.length;
    last = [chunk.index, chunk.totalChunks, chunk.isLast];
  }
  return { status: 'success', result: JSON.stringify([bytes, last ?? null]) };
} });`, map[string]any{"path": map[string]any{"type": "string"}}, "path"))
		t := conversation(converse(ctx, ns, []string{"measure"}, []skeinv1.ScriptStep{harness.Echo()}))
		put(ctx, t, "/large.txt", strings.Repeat("x", 600<<10))
		put(ctx, t, "/empty.txt", "")
		for path, want := range map[string]string{"/large.txt": `[614400,[2,3,true]]`, "/empty.txt": `[0,[0,1,true]]`, "/none.txt": `[0,null]`} {
			Expect(t.InvokeTool(ctx, "measure", map[string]string{"path": path})).To(HaveField("Result", MatchJSON(want)), path)
		}
	}, SpecTimeout(2*time.Minute))

	It("have twelve calls", Label("FIL-01"), func(ctx SpecContext) {
		t := filed(ctx)
		rec := put(ctx, t, "/data/a.csv", "x,1\ny,2\n")
		Expect(got(ctx, t, "/data/a.csv")).To(Equal("x,1\ny,2\n"))
		Expect(t.ReadFile(ctx, "/none")).To(BeNil())
		stream, err := t.ReadFileStream(ctx, "/data/a.csv")
		Expect(err).NotTo(HaveOccurred())
		for chunk, err := range stream {
			Expect(err).NotTo(HaveOccurred())
			Expect(string(chunk.Data)).To(Equal("x,1\ny,2\n"))
		}
		Expect(t.StatFile(ctx, "/data/a.csv")).To(Equal(rec))
		Expect(t.StatFile(ctx, "/none")).To(BeNil())
		dir, err := t.MakeDir(ctx, "/data/empty/deep")
		Expect(err).NotTo(HaveOccurred())
		Expect(dir.IsDirectory).To(BeTrue())
		listing, err := t.ReadDir(ctx, "/data", runtimeclient.Page{})
		Expect(err).NotTo(HaveOccurred())
		Expect(pathsOf(listing)).To(Equal([]string{"/data/a.csv", "/data/empty"}))
		_, err = t.ReadDir(ctx, "/none", runtimeclient.Page{})
		Expect(err).To(MatchError(runtimeclient.ErrNotFound))
		stats, err := t.FileStats(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect([]int64{stats.FileCount, stats.DirectoryCount, stats.TotalSize}).To(Equal([]int64{1, 3, 8}))
		Expect(t.GrepFiles(ctx, "^y", 0)).To(HaveField("Results", ConsistOf(runtimev1.GrepResult{Path: "/data/a.csv", Matches: []runtimev1.GrepMatch{{Line: 2, Content: "y,2"}}})))
		Expect(t.FindFiles(ctx, "*.csv", 0)).To(HaveField("Paths", []string{"/data/a.csv"}))
		Expect(t.Thumbnail(ctx, "/data/a.csv", runtimeclient.ThumbnailOptions{})).To(BeNil())
		Expect(t.RemoveDir(ctx, "/data/empty/deep")).To(Succeed())
		Expect(t.Unlink(ctx, "/data/a.csv")).To(Succeed())
		Expect(t.Unlink(ctx, "/data/a.csv")).To(MatchError(runtimeclient.ErrNotFound))
		Expect(t.StatFile(ctx, "/data/a.csv")).To(BeNil())
		Expect(t.StatFile(ctx, "/data/empty/deep")).To(BeNil())
	}, SpecTimeout(5*time.Minute))

	It("are described in full", Label("FIL-02"), func(ctx SpecContext) {
		t := filed(ctx)
		before := time.Now().Add(-time.Minute).UnixMicro()
		rec, err := t.WriteFile(ctx, "pictures//./red.png", strings.NewReader(drawn(640, 40, png.Encode)), runtimeclient.WriteFileOptions{
			MimeType: "image/x-mine", Metadata: map[string]any{"by": "me", "deep": map[string]any{"x": []any{1.5}}},
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(rec.Path).To(Equal("/pictures/red.png"))
		Expect(rec.Name).To(Equal("red.png"))
		Expect(rec.MimeType).To(Equal("image/x-mine"))
		Expect(rec.Storage).NotTo(BeEmpty())
		Expect(rec.Size).To(BeNumerically(">", 0))
		Expect(rec.IsDirectory).To(BeFalse())
		Expect(rec.Metadata).To(MatchJSON(`{"by":"me","deep":{"x":[1.5]}}`))
		Expect([]int{rec.Width, rec.Height}).To(Equal([]int{640, 40}))
		Expect(rec.CreatedAt).To(BeNumerically(">", before))
		Expect(rec.IsChunked).To(BeFalse())
		Expect(rec.ChunkCount).To(Equal(int64(1)))
		Expect(t.StatFile(ctx, "/pictures/red.png")).To(Equal(rec))

		for name, data := range map[string]string{"/p.jpg": drawn(31, 17, asJPEG), "/p.gif": drawn(31, 17, asGIF)} {
			rec := put(ctx, t, name, data)
			Expect([]int{rec.Width, rec.Height}).To(Equal([]int{31, 17}), name)
			Expect(rec.MimeType).To(HavePrefix("image/"), name)
		}
		Expect(put(ctx, t, "/p.webp", webp).Width).To(Equal(1))
		large := put(ctx, t, "/large.bin", strings.Repeat("x", 3*runtimev1.FileChunkBytes+1))
		Expect(large.IsChunked).To(BeTrue())
		Expect(large.ChunkCount).To(Equal(int64(4)))
		folder, err := t.StatFile(ctx, "/pictures")
		Expect(err).NotTo(HaveOccurred())
		Expect(folder.IsDirectory).To(BeTrue())
	}, SpecTimeout(5*time.Minute))

	It("come in chunks that can be left, and null when they are missing", Label("FIL-03"), func(ctx SpecContext) {
		t := filed(ctx)
		data := strings.Repeat("0123456789abcdef", 50_000) // 800,000 bytes
		put(ctx, t, "/f", data)
		stream, err := t.ReadFileStream(ctx, "/f")
		Expect(err).NotTo(HaveOccurred())
		var back strings.Builder
		next := int64(0)
		for c, err := range stream {
			Expect(err).NotTo(HaveOccurred())
			Expect(c.Index).To(Equal(next))
			Expect(c.TotalChunks).To(Equal(int64(4)))
			Expect(c.IsLast).To(Equal(c.Index == 3))
			back.Write(c.Data)
			next++
		}
		Expect(next).To(Equal(int64(4)))
		Expect(back.String()).To(Equal(data))

		for c, err := range stream {
			Expect(err).NotTo(HaveOccurred())
			Expect(c.Index).To(BeZero())
			break
		}
		over, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err = t.ReadFileStream(over, "/f")
		Expect(err).NotTo(HaveOccurred())
		var ended error
		for c, err := range stream {
			if cancel(); err != nil {
				ended = err
			} else {
				Expect(c.IsLast).To(BeFalse(), "it was aborted after the first chunk")
			}
		}
		Expect(ended).To(MatchError(context.Canceled))

		Expect(t.ReadFileStream(ctx, "/none")).To(BeNil())
		put(ctx, t, "/empty", "")
		stream, err = t.ReadFileStream(ctx, "/empty")
		Expect(err).NotTo(HaveOccurred())
		chunks := 0
		for c, err := range stream {
			Expect(err).NotTo(HaveOccurred())
			Expect(c).To(Equal(runtimev1.FileChunk{Data: []byte{}, TotalChunks: 1, IsLast: true}))
			chunks++
		}
		Expect(chunks).To(Equal(1))
	}, SpecTimeout(5*time.Minute))

	It("keep to their paths and kinds", Label("FIL-04"), func(ctx SpecContext) {
		th := converse(ctx, namespace(ctx), nil, []skeinv1.ScriptStep{harness.Echo()})
		t := conversation(th)
		Expect(put(ctx, t, "a//b/./c.txt", "one").Path).To(Equal("/a/b/c.txt"))
		put(ctx, t, "/a/b/c.txt", "two")
		Expect(got(ctx, t, "/a/b/c.txt")).To(Equal("two"))
		err := t.RemoveDir(ctx, "/a")
		Expect(err).To(MatchError(runtimeclient.ErrInvalid))
		Expect(err).To(MatchError(ContainSubstring("not empty")))
		Expect(t.RemoveDir(ctx, "/a/b/c.txt")).To(MatchError(ContainSubstring("is a file")))
		Expect(t.Unlink(ctx, "/a/b")).To(MatchError(ContainSubstring("is a folder")))
		Expect(t.Unlink(ctx, "/a/b/c.txt")).To(Succeed())
		Expect(t.RemoveDir(ctx, "/a/b")).To(Succeed())
		Expect(t.RemoveDir(ctx, "/a")).To(Succeed())

		long := strings.Repeat("a/", 600)
		for path, says := range map[string]string{
			"/x%00y": "NUL", "/" + strings.Repeat("a", 256): "shorter name", "/" + long[:len(long)-1]: "shorter one", "/x%ffy": "UTF-8",
		} {
			// As they are on the wire: the client would not let them out.
			raw := "/apis/runtime.skein.dev/v1alpha1/namespaces/" + th.Namespace + "/threads/" + th.Name + "/files" + path
			_, err := cluster.KubectlIn(ctx, "data", "replace", "--raw", raw, "-f", "-")
			Expect(err).To(MatchError(ContainSubstring(says)), path)
		}
		_, err = t.ReadDir(ctx, "/a/../b", runtimeclient.Page{})
		Expect(err).To(And(MatchError(runtimeclient.ErrInvalid), MatchError(ContainSubstring("without \"..\""))), "by the server")
		_, err = t.WriteFile(ctx, "/../x", strings.NewReader("x"), runtimeclient.WriteFileOptions{})
		Expect(err).To(MatchError(ContainSubstring("..")))
	}, SpecTimeout(5*time.Minute))

	It("are found by glob and searched by expression, a hundred at once", Label("FIL-05"), func(ctx SpecContext) {
		t := filed(ctx)
		for _, p := range []string{"/a.csv", "/d/a.csv", "/d/e/ab.csv", "/d/x.txt"} {
			put(ctx, t, p, "first\napple "+p+"\n")
		}
		put(ctx, t, "/d/binary", "apple\x00")
		for glob, want := range map[string][]string{
			"a.csv": {"/a.csv", "/d/a.csv"}, "/a.csv": {"/a.csv"}, "/d/*": {"/d/a.csv", "/d/binary", "/d/x.txt"},
			"/d/**/a*.csv": {"/d/a.csv", "/d/e/ab.csv"}, "a?.csv": {"/d/e/ab.csv"}, "[a].csv": {},
		} {
			Expect(t.FindFiles(ctx, glob, 0)).To(HaveField("Paths", want), glob)
		}
		grep, err := t.GrepFiles(ctx, `^apple /d/(a|e)`, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(grep.Results).To(Equal([]runtimev1.GrepResult{
			{Path: "/d/a.csv", Matches: []runtimev1.GrepMatch{{Line: 2, Content: "apple /d/a.csv"}}},
			{Path: "/d/e/ab.csv", Matches: []runtimev1.GrepMatch{{Line: 2, Content: "apple /d/e/ab.csv"}}},
		}))
		Expect(grep.Truncated).To(BeFalse())
		_, err = t.GrepFiles(ctx, "(?<=x)y", 0)
		Expect(err).To(And(MatchError(runtimeclient.ErrInvalid), MatchError(ContainSubstring("RE2"))))

		put(ctx, t, "/many/lines", strings.Repeat("pear\n", 150))
		grep, err = t.GrepFiles(ctx, "pear", 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(grep.Truncated).To(BeTrue())
		Expect(grep.Results[0].Matches).To(HaveLen(100))
		Expect(t.GrepFiles(ctx, "pear", 200)).To(HaveField("Truncated", false))
		for i := range 101 {
			put(ctx, t, fmt.Sprintf("/many/%03d.md", i), "")
		}
		found, err := t.FindFiles(ctx, "*.md", 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(found.Paths).To(HaveLen(100))
		Expect(found.Truncated).To(BeTrue())
		Expect(t.Unlink(ctx, "/many/100.md")).To(Succeed())
		Expect(t.FindFiles(ctx, "*.md", 0)).To(HaveField("Truncated", false))
	}, SpecTimeout(5*time.Minute))

	It("have thumbnails when they are images, and take no bombs", Label("FIL-06"), func(ctx SpecContext) {
		t := filed(ctx)
		for name, data := range map[string]string{
			"/p.png": drawn(1200, 300, png.Encode), "/p.jpg": drawn(1200, 300, asJPEG), "/p.gif": drawn(1200, 300, asGIF),
		} {
			put(ctx, t, name, data)
			small, err := t.Thumbnail(ctx, name, runtimeclient.ThumbnailOptions{})
			Expect(err).NotTo(HaveOccurred())
			img, _, err := image.Decode(bytes.NewReader(small.Data))
			Expect(err).NotTo(HaveOccurred())
			Expect(img.Bounds().Size()).To(Equal(image.Pt(256, 64)), name)
			left, _, _, _ := img.At(20, 32).RGBA()
			_, _, right, _ := img.At(236, 32).RGBA()
			Expect(min(left, right)).To(BeNumerically(">", 0xd000), "%s still is red and blue", name)
			small, err = t.Thumbnail(ctx, name, runtimeclient.ThumbnailOptions{Width: 60, Height: 1000})
			Expect(err).NotTo(HaveOccurred())
			c, _, err := image.DecodeConfig(bytes.NewReader(small.Data))
			Expect(err).NotTo(HaveOccurred())
			Expect([]int{c.Width, c.Height}).To(Equal([]int{60, 15}))
		}
		put(ctx, t, "/p.webp", webp)
		small, err := t.Thumbnail(ctx, "/p.webp", runtimeclient.ThumbnailOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(small).NotTo(BeNil())

		put(ctx, t, "/text.png", "I am no picture")
		put(ctx, t, "/page.svg", "<svg/>")
		for _, p := range []string{"/text.png", "/page.svg", "/none.png"} {
			Expect(t.Thumbnail(ctx, p, runtimeclient.ThumbnailOptions{})).To(BeNil(), p)
		}
		bomb := []byte(drawn(8, 8, png.Encode))
		copy(bomb[16:24], []byte{0, 0, 0x75, 0x30, 0, 0, 0x75, 0x30}) // 30,000 by 30,000, and a checksum that is right
		copy(bomb[29:33], pngSum(bomb[12:29]))
		put(ctx, t, "/bomb.png", string(bomb))
		_, err = t.Thumbnail(ctx, "/bomb.png", runtimeclient.ThumbnailOptions{})
		Expect(err).To(And(MatchError(runtimeclient.ErrInvalid), MatchError(ContainSubstring("30000 by 30000"))))
		cut := drawn(1200, 300, asJPEG)
		put(ctx, t, "/cut.jpg", cut[:len(cut)/2])
		_, err = t.Thumbnail(ctx, "/cut.jpg", runtimeclient.ThumbnailOptions{})
		Expect(err).To(And(MatchError(runtimeclient.ErrInvalid), MatchError(ContainSubstring("broken"))))
	}, SpecTimeout(5*time.Minute))

	It("cross between parent and child as copies with the receiver's paths", Label("FIL-07"), func(ctx SpecContext) {
		ns := namespace(ctx)
		create(ctx,
			harness.Scripted(ns, "parent",
				harness.On("go", harness.Calls("subagent_create", map[string]any{"agent": "helper", "message": "work", "attachments": []string{"/orders.csv"}})),
				harness.After("subagent_create", harness.Calls("read_file", map[string]any{"path": "/attachments/report.txt"})),
				harness.After("read_file", harness.Answer("{{ .Last.Content }}"))),
			harness.Prompt(ns, "parent", "parent", "builtin:subagents", "builtin:files"),
			harness.Agent(ns, "parent", "parent", func(s *skeinv1.AgentSpec) {
				s.Subagents = []skeinv1.AgentSubagent{helper(func(s *skeinv1.AgentSubagent) { s.Blocking = true })}
			}),
			harness.Scripted(ns, "worker",
				harness.On("work", harness.Calls("read_file", map[string]any{"path": "/attachments/orders.csv"})),
				harness.After("read_file", harness.Calls("write_file", map[string]any{"path": "/report.txt", "content": "seen: {{ .Last.Content }}"})),
				harness.After("write_file", harness.Calls("finish", map[string]any{"message": "done", "attachments": []string{"/report.txt"}}))),
			harness.Prompt(ns, "worker", "worker", "builtin:files"),
			harness.Agent(ns, "worker", "worker", func(s *skeinv1.AgentSpec) { s.SideA.SessionStop = &skeinv1.SessionTool{Name: "finish"} }),
			harness.NewThread(ns, "thread", "parent"),
		)
		th := ready(ctx, cluster.Thread(ns, "thread"))
		t := conversation(th)
		put(ctx, t, "/orders.csv", "a,b")
		ms := say(ctx, th, 1, "go")
		Expect(last(ms)).To(Equal("seen: a,b"))
		Expect(ms).To(ContainElement(And(HaveField("Name", "subagent_create"), HaveField("Attachments", ConsistOf(HaveField("Path", "/attachments/report.txt"))))))

		child := conversation(onlyChild(ctx, ns))
		first, err := child.Messages(ctx, runtimeclient.MessageOptions{Order: "asc"})
		Expect(err).NotTo(HaveOccurred())
		Expect(first.Messages[0].Attachments).To(ConsistOf(HaveField("Path", "/attachments/orders.csv")))

		By("changing either side")
		put(ctx, t, "/orders.csv", "other")
		Expect(got(ctx, child, "/attachments/orders.csv")).To(Equal("a,b"))
		Expect(child.Unlink(ctx, "/report.txt")).To(Succeed())
		Expect(got(ctx, t, "/attachments/report.txt")).To(Equal("seen: a,b"))
	}, SpecTimeout(5*time.Minute))

	It("have a quota, which can be changed", Label("FIL-08"), func(ctx SpecContext) {
		bytes, files := resource.MustParse("1Ki"), int64(3)
		ns := namespace(ctx)
		th := converse(ctx, ns, []string{"builtin:files"}, []skeinv1.ScriptStep{
			harness.On("go", harness.Calls("write_file", map[string]any{"path": "/mine", "content": strings.Repeat("x", 600)})),
			harness.After("write_file", harness.Answer("done")),
		}, func(s *skeinv1.ThreadSpec) { s.FileQuota = &skeinv1.FileQuota{Bytes: &bytes, Files: &files} })
		t := conversation(th)
		put(ctx, t, "/a", strings.Repeat("x", 600))
		over := func(err error, field string) {
			GinkgoHelper()
			Expect(err).To(MatchError(runtimeclient.ErrQuota))
			Expect(apierrors.IsForbidden(err)).To(BeTrue())
			Expect(err).To(MatchError(And(ContainSubstring(field), ContainSubstring("quota"), ContainSubstring("delete"))))
		}
		_, err := t.WriteFile(ctx, "/b", strings.NewReader(strings.Repeat("x", 425)), runtimeclient.WriteFileOptions{})
		over(err, "bytes")
		_, err = t.WriteFile(ctx, "/b", io.LimitReader(zeros{}, 64<<20), runtimeclient.WriteFileOptions{})
		over(err, "bytes")
		Expect(t.StatFile(ctx, "/b")).To(BeNil())
		content, status := result(say(ctx, th, 1, "go"), "write_file")
		Expect(status).To(Equal("error"))
		Expect(content).To(ContainSubstring("quota"))

		put(ctx, t, "/b", strings.Repeat("x", 424))
		put(ctx, t, "/a", strings.Repeat("y", 600))
		put(ctx, t, "/c", "")
		_, err = t.MakeDir(ctx, "/d")
		over(err, "files")
		stats, err := t.FileStats(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect([]int64{stats.TotalSize, stats.MaxSize, stats.FileCount, stats.MaxEntries}).To(Equal([]int64{1024, 1024, 3, 3}))

		quota := func(bytes string) error { // a patch, which does not conflict with the controller's writes
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"fileQuota":{"bytes":%q,"files":null}}}`, bytes))
			return cluster.Client.Patch(ctx, harness.NewThread(ns, th.Name, "agent"), patch)
		}
		Expect(quota("2Ki")).To(Succeed())
		Eventually(ctx, func() error {
			_, err := t.WriteFile(ctx, "/d/e", strings.NewReader(strings.Repeat("x", 1000)), runtimeclient.WriteFileOptions{})
			if err != nil && !errors.Is(err, runtimeclient.ErrQuota) {
				return StopTrying("another error").Wrap(err)
			}
			return err
		}).Should(Succeed())
		Expect(quota("-1")).To(MatchError(ContainSubstring("whole number of bytes")))
	}, SpecTimeout(5*time.Minute))
})
