//go:build linux && (amd64 || arm64)

package v8

import (
	"bytes"
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox/protocol"
)

var _ = Describe("the frames that wait for an engine", func() {
	It("do not keep a Terminate back, be they answers to all the calls that code may make", Label("COD-04"), func(ctx SpecContext) {
		var sent bytes.Buffer
		manager := protocol.NewConn(nil, &sent, nil)
		text := strings.Repeat("x", 1000)
		for id := range uint64(1100) { // the client's limit of concurrent calls
			Expect(manager.Write(protocol.TypeReply, (&protocol.Reply{ID: id, Outcome: protocol.Outcome{Value: []byte(text)}}).Encode())).To(Succeed())
		}
		Expect(manager.Write(protocol.TypeTerminate, protocol.EncodeText("enough"))).To(Succeed())

		in := newInbox(64 << 20)
		defer context.AfterFunc(ctx, in.die)()
		reason, err := in.untilTerminate(protocol.NewConn(&sent, nil, nil))
		Expect(err).NotTo(HaveOccurred())
		Expect(reason).To(Equal("enough"))
		Expect(in.frames).To(HaveLen(1100))

		for range 1100 {
			in.used(<-in.frames)
		}
		Expect(in.small.TryAcquire(maxSmall)).To(BeTrue(), "all of the room was given back")
	}, NodeTimeout(5*time.Minute))

	It("take no more than their room, however small they are", Label("COD-01"), func(ctx SpecContext) {
		var sent bytes.Buffer
		manager := protocol.NewConn(nil, &sent, nil)
		content := make([]byte, largeFrame/2)
		for range 2 * maxSmall / len(content) {
			Expect(manager.Write(protocol.TypeReply, content)).To(Succeed())
		}
		in := newInbox(64 << 20)
		defer context.AfterFunc(ctx, in.die)()
		over := make(chan error, 1)
		go func() {
			_, err := in.untilTerminate(protocol.NewConn(&sent, nil, nil))
			over <- err
		}()
		Eventually(in.frames).WithTimeout(2 * time.Minute).Should(HaveLen(maxSmall / (len(content) + frameBytes)))
		in.die()
		Eventually(over).WithTimeout(2 * time.Minute).Should(Receive(HaveOccurred()))
		Expect(len(in.frames) * (len(content) + frameBytes)).To(BeNumerically("<=", maxSmall))
	}, NodeTimeout(5*time.Minute))
})
