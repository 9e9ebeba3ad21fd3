package protocol_test

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"pgregory.net/rapid"

	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

func TestProtocol(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Sandbox protocol")
}

var _ = Describe("frames", func() {
	It("arrive as they were sent, however they are cut", func() {
		var wire bytes.Buffer
		out := protocol.NewConn(nil, &wire, nil)
		large := bytes.Repeat([]byte("0123456789"), 200_000)
		Expect(out.Write(protocol.TypeReport, large)).To(Succeed())
		Expect(out.Write(protocol.TypeStarted, nil)).To(Succeed())
		for t, content := range map[protocol.Type][]byte{protocol.TypeReport: large, protocol.TypeLog: []byte("small")} {
			read, err := protocol.NewFrame(t, content)
			Expect(err).NotTo(HaveOccurred())
			frame, err := io.ReadAll(read)
			Expect(err).NotTo(HaveOccurred())
			var written bytes.Buffer
			Expect(protocol.NewConn(nil, &written, nil).Write(t, content)).To(Succeed())
			Expect(bytes.Equal(frame, written.Bytes())).To(BeTrue())
		}
		in := protocol.NewConn(iotest.OneByteReader(bytes.NewReader(wire.Bytes())), nil, nil)
		t, content, err := in.Read()
		Expect(err).NotTo(HaveOccurred())
		Expect(t).To(Equal(protocol.TypeReport))
		Expect(bytes.Equal(content, large)).To(BeTrue())
		t, content, err = in.Read()
		Expect(err).NotTo(HaveOccurred())
		Expect(t).To(Equal(protocol.TypeStarted))
		Expect(content).To(BeEmpty())
		_, _, err = in.Read()
		Expect(err).To(Equal(io.EOF))
	})

	It("are passed on unread", func() {
		var wire, onward bytes.Buffer
		Expect(protocol.NewConn(nil, &wire, nil).Write(protocol.TypeReport, make([]byte, 3<<20))).To(Succeed())
		sent := bytes.Clone(wire.Bytes())
		h, err := protocol.ReadHeader(&wire)
		Expect(err).NotTo(HaveOccurred())
		Expect(protocol.Copy(&onward, &wire, h)).To(Succeed())
		Expect(bytes.Equal(onward.Bytes(), sent)).To(BeTrue())
	})

	DescribeTable("that break the rules are refused", func(raw string) {
		_, _, err := protocol.NewConn(strings.NewReader(raw), nil, nil).Read()
		Expect(err).To(MatchError(protocol.ErrProtocol))
	},
		Entry("no type", "\x00\x00\x00\x00\x13"),
		Entry("too large", "\xff\xff\xff\xff\x13"),
		Entry("too large for its type", "\x01\x00\x00\x00\x14"),
	)

	It("that end early are an error, and take no more memory than arrived", func() {
		_, _, err := protocol.NewConn(strings.NewReader("\x02\x00\x00\x00\x13abc"), nil, nil).Read()
		Expect(err).To(Equal(io.ErrUnexpectedEOF))
	})

	It("have one direction each", func() {
		for t := range protocol.Type(255) {
			Expect(t.FromManager() && t.FromChild()).To(BeFalse())
		}
		Expect(protocol.TypeGone.FromChild()).To(BeFalse())
		Expect(protocol.TypeReady.FromChild()).To(BeFalse())
	})
})

var _ = Describe("messages", func() {
	It("are the same after a round trip", func() {
		e := &sandbox.Error{Name: "TypeError", Message: "m", Stack: "s", Specifier: "./x", Line: 3, Column: 4}
		open := &protocol.Open{
			Limits: protocol.Limits{Kind: protocol.KindRun, Memory: 5 << 20, Wall: time.Second}, Main: "main.ts", Fn: "f", Args: []byte{1},
			Modules:  []protocol.Module{{Name: "main.ts", Form: protocol.FormTypeScript, Source: "1"}, {Name: "d.json", Form: protocol.FormJSON, Source: "{}"}},
			Bindings: []protocol.Binding{{Name: "g", Func: true, Value: []byte{}}, {Specifier: "x", Name: "y", Value: []byte{2}}}, Static: []byte{3},
		}
		b, err := open.Encode()
		Expect(err).NotTo(HaveOccurred())
		Expect(protocol.ParseOpen(b)).To(Equal(open))
		Expect(open.Compiled()).To(BeFalse())
		open.Modules = []protocol.Module{{Name: "main.ts", Source: "1", Map: []byte("{}")}, {Name: "d.json", Source: "{}"}}
		b, err = open.Encode()
		Expect(err).NotTo(HaveOccurred())
		Expect(protocol.ParseOpen(b)).To(Equal(open), "with source maps")
		Expect(open.Compiled()).To(BeTrue())
		open.Spent = time.Second
		b, err = open.Encode()
		Expect(err).NotTo(HaveOccurred())
		Expect(protocol.ParseOpen(b)).To(Equal(open), "with a time")
		_, err = protocol.ParseOpen(b[:len(b)-1])
		Expect(err).To(MatchError(protocol.ErrProtocol))
		reply := &protocol.Reply{ID: 1 << 40, Outcome: protocol.Outcome{Err: e}}
		Expect(protocol.ParseReply(reply.Encode())).To(Equal(reply))
		settled := &protocol.Settled{ID: 2, Outcome: protocol.Outcome{Value: []byte{1, 2}}}
		Expect(protocol.ParseSettled(settled.Encode())).To(Equal(settled))
		call := &protocol.HostCall{ID: 3, Func: 4, Method: "m", Invocation: "i", Args: []byte{5}}
		Expect(protocol.ParseHostCall(call.Encode())).To(Equal(call))
		invoke := &protocol.Invoke{ID: 5, Invocation: "i", Module: "m", Args: []byte{6}}
		Expect(protocol.ParseInvoke(invoke.Encode())).To(Equal(invoke))
		describe := &protocol.Describe{ID: 6, Module: "m"}
		Expect(protocol.ParseDescribe(describe.Encode())).To(Equal(describe))
		ref := &protocol.Call{ID: 7, Ref: 8, Args: []byte{9}}
		Expect(protocol.ParseCall(ref.Encode())).To(Equal(ref))
		log := &protocol.Log{Invocation: "i", Log: sandbox.Log{Level: "warn", Message: "m", Time: time.UnixMicro(1234567).UTC()}}
		Expect(protocol.ParseLog(log.Encode())).To(Equal(log))
		done := &protocol.Done{Status: sandbox.StatusError, Memory: 77, Outcome: protocol.Outcome{Err: e}}
		Expect(protocol.ParseDone(done.Encode())).To(Equal(done))
		gone := &protocol.Gone{Status: sandbox.StatusMemory, Reason: "r"}
		Expect(protocol.ParseGone(gone.Encode())).To(Equal(gone))
	})

	It("that are hostile are errors, never more", func() {
		parsers := []func([]byte) error{
			func(b []byte) error { _, err := protocol.ParseOpen(b); return err }, func(b []byte) error { _, err := protocol.ParseReply(b); return err },
			func(b []byte) error { _, err := protocol.ParseSettled(b); return err }, func(b []byte) error { _, err := protocol.ParseHostCall(b); return err },
			func(b []byte) error { _, err := protocol.ParseLog(b); return err }, func(b []byte) error { _, err := protocol.ParseDone(b); return err },
			func(b []byte) error { _, err := protocol.ParseGone(b); return err }, func(b []byte) error { _, err := protocol.ParseInvoke(b); return err },
		}
		rapid.Check(GinkgoT(), func(t *rapid.T) {
			b := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "bytes")
			for _, parse := range parsers {
				if err := parse(b); err != nil && !strings.Contains(err.Error(), "violation") {
					t.Fatalf("%v", err)
				}
			}
		})
	})

	It("are cut to their bounds", func() {
		long := strings.Repeat("é", 100_000)
		done := &protocol.Done{Status: sandbox.StatusError, Outcome: protocol.Outcome{Err: &sandbox.Error{Name: long, Message: long, Stack: long}}}
		got, err := protocol.ParseDone(done.Encode())
		Expect(err).NotTo(HaveOccurred())
		for text, most := range map[string]int{got.Err.Name: protocol.MaxName, got.Err.Message: protocol.MaxMessage, got.Err.Stack: protocol.MaxStack} {
			Expect(len(text)).To(BeNumerically("<=", most))
			Expect(utf8.ValidString(text)).To(BeTrue())
			Expect(text).To(HaveSuffix("…"))
		}
	})

	It("cannot claim what makes no sense", func() {
		for _, d := range []protocol.Done{{Status: "owned"}, {Status: sandbox.StatusSuccess, Outcome: protocol.Outcome{Err: &sandbox.Error{}}}, {Status: sandbox.StatusError}} {
			_, err := protocol.ParseDone(d.Encode())
			Expect(err).To(MatchError(protocol.ErrProtocol))
		}
		g, err := protocol.ParseGone((&protocol.Gone{Status: sandbox.StatusSuccess}).Encode())
		Expect(err).NotTo(HaveOccurred())
		Expect(g.Status).To(Equal(sandbox.StatusTerminated))
	})

	It("that are too large say so before they are sent", func() {
		o := &protocol.Open{Limits: protocol.Limits{Kind: protocol.KindRun}, Args: make([]byte, protocol.MaxFrame)}
		_, err := o.Encode()
		Expect(err).To(MatchError(ContainSubstring("at most 40 MiB")))
		Expect(protocol.NewConn(nil, io.Discard, nil).Write(protocol.TypeLog, make([]byte, 1<<20))).To(MatchError(ContainSubstring("too large")))
		_, err = protocol.NewFrame(protocol.TypeLog, make([]byte, 1<<20))
		Expect(err).To(MatchError(ContainSubstring("too large")))
	})
})
