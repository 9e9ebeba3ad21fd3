package main

import (
	"bytes"
	"io"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

var _ = Describe("progress", func() {
	It("shows a bar after a moment, and clears its line", func() {
		var out lockedBuffer
		ticks := make(chan time.Time)
		g := newProgress(&out, "orders.csv", 4<<20, ticks, nil)
		ticks <- g.began.Add(progressDelay / 2)
		in := g.reader(strings.NewReader(strings.Repeat("x", 3<<20)))
		_, err := io.Copy(io.Discard, in)
		Expect(err).NotTo(HaveOccurred())
		ticks <- g.began.Add(3 * time.Second)
		ticks <- g.began.Add(3 * time.Second) // the one before is drawn
		Expect(out.String()).To(HavePrefix("\rorders.csv  ██████████████████░░░░░░  75%  3.0 MiB of 4.0 MiB  1.0 MiB/s  1s left\x1b[K"))
		g.stop()
		g.stop()
		Expect(out.String()).To(HaveSuffix("\r\x1b[K"))
	})

	It("restarts its count when a reader is rewound", func() {
		g := newProgress(io.Discard, "x", 10, nil, nil)
		defer g.stop()
		in := g.reader(strings.NewReader("0123456789"))
		_, err := io.ReadAll(in)
		Expect(err).NotTo(HaveOccurred())
		_, err = in.(io.Seeker).Seek(0, io.SeekStart)
		Expect(err).NotTo(HaveOccurred())
		Expect(g.count.Load()).To(BeZero())
		_, seeks := g.reader(io.LimitReader(in, 1)).(io.Seeker)
		Expect(seeks).To(BeFalse())
	})

	It("shows amount and rate without a known total, and nothing for quick work or without a terminal", func() {
		var out bytes.Buffer
		g := newProgress(&out, "backup", 0, nil, nil)
		_, err := g.writer(io.Discard).Write(make([]byte, 2048))
		Expect(err).NotTo(HaveOccurred())
		Expect(g.line(g.began.Add(2 * time.Second))).To(Equal("backup  2.0 KiB  1.0 KiB/s"))
		g.stop()
		Expect(out.String()).To(BeEmpty())
		p := &plugin{IOStreams: genericiooptions.IOStreams{ErrOut: &out}}
		g = p.progress("x", 1)
		g.stop()
		Expect(out.String()).To(BeEmpty())
	})
})
