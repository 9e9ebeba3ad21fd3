package gateway

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/thread"
)

var _ = DescribeTable("A delivery that is not taken is refused in words for its sender", Label("EVT-05"), func(ctx SpecContext, err error, code int, says string) {
	p := outsideDelivery(ctx, fmt.Errorf("queue: %w", err))
	Expect(p.status).To(Equal(code))
	Expect(p.message).To(And(ContainSubstring(says), Not(ContainSubstring("agent")), Not(ContainSubstring("conversation")), Not(ContainSubstring("v1/"))))
},
	Entry("while the agent cannot be reached", errUnavailable, 503, "send it again later"),
	Entry("while the store is away", store.ErrUnavailable, 503, "send it again later"),
	Entry("while the thread changes", store.ErrConflict, 503, "send it again later"),
	Entry("when the thread has ended", store.ErrTerminated, 410, "name another one in spec.threadRef"),
	Entry("when too many messages wait", store.ErrQueueFull, 429, "send it again later"),
	Entry("when the message may not be so", &thread.InvalidError{}, 400, "does not take this delivery"),
	Entry("with the text of its own", errUsedID, 409, "another body"),
)
