package bench

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/process"
	"github.com/skein-dev/skein/test/harness"
)

// computations are functions "work" that take a number; each says for which number an engine is busy for a while.
var computations = []struct {
	name       string
	fast, slow int // for an engine that compiles, and for one that interprets
	source     string
}{
	{"fib", 34, 24, "const work = (n) => n < 2 ? n : work(n - 1) + work(n - 2);"},
	{"nbody", 1_500_000, 30_000, `const work = (n) => {
  const bodies = [[0, 0, 0, 0, 0, 0, 39.47], [4.84, -1.16, -0.1, 0.6, 2.81, -0.02, 0.037], [8.34, 4.12, -0.4, -1.01, 1.82, 0.008, 0.011], [12.89, -15.11, -0.22, 1.08, 0.86, -0.01, 0.0017], [15.37, -25.9, 0.17, 0.97, 0.59, -0.034, 0.002]];
  for (let step = 0; step < n; step++) {
    for (let i = 0; i < bodies.length; i++) {
      const a = bodies[i];
      for (let j = i + 1; j < bodies.length; j++) {
        const b = bodies[j];
        const dx = a[0] - b[0], dy = a[1] - b[1], dz = a[2] - b[2];
        const d2 = dx * dx + dy * dy + dz * dz;
        const mag = 0.001 / (d2 * Math.sqrt(d2));
        a[3] -= dx * b[6] * mag; a[4] -= dy * b[6] * mag; a[5] -= dz * b[6] * mag;
        b[3] += dx * a[6] * mag; b[4] += dy * a[6] * mag; b[5] += dz * a[6] * mag;
      }
    }
    for (const b of bodies) { b[0] += 0.001 * b[3]; b[1] += 0.001 * b[4]; b[2] += 0.001 * b[5]; }
  }
  return bodies[0][0];
};`},
	{"sha256 (KiB)", 32_768, 128, `const K = new Uint32Array(64);
{ let n = 0; for (let c = 2; n < 64; c++) { let prime = true; for (let d = 2; d * d <= c; d++) if (c % d === 0) prime = false; if (prime) K[n++] = (Math.cbrt(c) % 1) * 2 ** 32; } }
const w = new Uint32Array(64);
const block = (h, bytes, at) => {
  for (let i = 0; i < 16; i++) w[i] = (bytes[at + 4 * i] << 24) | (bytes[at + 4 * i + 1] << 16) | (bytes[at + 4 * i + 2] << 8) | bytes[at + 4 * i + 3];
  for (let i = 16; i < 64; i++) {
    const x = w[i - 15], y = w[i - 2];
    w[i] = w[i - 16] + w[i - 7] + ((x >>> 7 | x << 25) ^ (x >>> 18 | x << 14) ^ x >>> 3) + ((y >>> 17 | y << 15) ^ (y >>> 19 | y << 13) ^ y >>> 10);
  }
  let [a, b, c, d, e, f, g, k] = h;
  for (let i = 0; i < 64; i++) {
    const t = (k + ((e >>> 6 | e << 26) ^ (e >>> 11 | e << 21) ^ (e >>> 25 | e << 7)) + (e & f ^ ~e & g) + K[i] + w[i]) | 0;
    const u = (((a >>> 2 | a << 30) ^ (a >>> 13 | a << 19) ^ (a >>> 22 | a << 10)) + (a & b ^ a & c ^ b & c)) | 0;
    k = g; g = f; f = e; e = (d + t) | 0; d = c; c = b; b = a; a = (t + u) | 0;
  }
  h[0] += a; h[1] += b; h[2] += c; h[3] += d; h[4] += e; h[5] += f; h[6] += g; h[7] += k;
};
const work = (n) => {
  const bytes = new Uint8Array(1024).fill(97), h = new Uint32Array([1779033703, 3144134277, 1013904242, 2773480762, 1359893119, 2600822924, 528734635, 1541459225]);
  for (let i = 0; i < n; i++) for (let at = 0; at < 1024; at += 64) block(h, bytes, at);
  return h[0];
};`},
	{"JSON (MB both ways)", 25, 3, `const work = (n) => {
  const rows = [];
  for (let i = 0; i < 9000; i++) rows.push({ id: i, name: 'row ' + i, tags: ['a', 'b', 'c'], score: i / 7, nested: { on: i % 2 === 0, text: 'lorem ipsum dolor' } });
  let length = 0;
  for (let i = 0; i < n; i++) length += JSON.stringify(JSON.parse(JSON.stringify(rows))).length;
  return length;
};`},
}

var _ = Describe("Engines", Label("engines"), func() {
	It("compute", func(ctx SpecContext) {
		deno := filepath.Join(harness.Root(), "hack", "deno.sh")
		out, err := exec.CommandContext(ctx, deno, "install").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		out, err = exec.CommandContext(ctx, deno, "bin").Output()
		Expect(err).NotTo(HaveOccurred())
		program := strings.TrimSpace(string(out))
		pool, err := process.New(process.Options{Command: []string{harness.Bin("sandbox")}, Deno: program, MaxMemory: 256 << 20})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(pool.Close)
		engines := map[sandbox.Engine]sandbox.Sandbox{}
		for _, e := range []sandbox.Engine{sandbox.QuickJS, sandbox.V8} {
			engines[e], err = pool.AcquireOn(ctx, string(e), e)
			Expect(err).NotTo(HaveOccurred())
		}
		for _, c := range computations {
			source := c.source + "\nconst timed = (n) => { const began = Date.now(); work(n); return Date.now() - began; };\n"
			var plain, v8, quickjs []float64
			// One after the other in each round, so that a busy machine is busy for all of them.
			for range 7 {
				plain = append(plain, plainDeno(ctx, program, source, c.fast))
				v8 = append(v8, inSandbox(ctx, engines[sandbox.V8], source, c.fast))
				quickjs = append(quickjs, inSandbox(ctx, engines[sandbox.QuickJS], source, c.slow))
			}
			p, v, q := median(plain), median(v8), median(quickjs)
			scale := float64(c.fast) / float64(c.slow)
			if c.name == "fib" {
				scale = 122.99 // 1.618 for each of ten steps
			}
			figure("compute "+c.name+" "+strconv.Itoa(c.fast), "plain Deno %.0f ms, v8 %.0f ms (%.2f times; budget 1.3), quickjs %.0f ms for %d (%.0f times v8)", p, v, v/p, q, c.slow, q*scale/v)
		}
	}, SpecTimeout(10*time.Minute))
})

func inSandbox(ctx context.Context, s sandbox.Sandbox, source string, n int) float64 {
	GinkgoHelper()
	r := s.RunCode(ctx, sandbox.CodeRequest{Source: source + "export default timed;", Language: sandbox.JavaScript, Args: []any{n}}).Wait(ctx)
	Expect(r.Status).To(Equal(sandbox.StatusSuccess), "%+v", r.Error)
	return r.Value.(float64)
}

func plainDeno(ctx context.Context, program, source string, n int) float64 {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "work.mjs")
	Expect(os.WriteFile(file, []byte(source+"console.log(timed("+strconv.Itoa(n)+"))"), 0o600)).To(Succeed())
	cmd := exec.CommandContext(ctx, program, "run", "--quiet", "--no-config", "--no-lock", file)
	cmd.Env = []string{"DENO_DIR=" + filepath.Join(filepath.Dir(file), "cache"), "NO_COLOR=1"}
	out, err := cmd.Output()
	Expect(err).NotTo(HaveOccurred())
	ms, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	Expect(err).NotTo(HaveOccurred())
	return ms
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}
