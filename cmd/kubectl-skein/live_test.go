package main

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

var clockTimes = regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d `)

var _ = Describe("the live view", func() {
	var out bytes.Buffer
	var view *live

	BeforeEach(func() {
		out.Reset()
		view = newLive(transcript{out: &out}, true, false)
	})
	printed := func() string { return clockTimes.ReplaceAllString(out.String(), "") }
	delta := func(text string) {
		data, err := json.Marshal(map[string]string{"text": text})
		Expect(err).NotTo(HaveOccurred())
		view.event(&runtimev1.Event{Type: runtimev1.EventDelta, Data: data})
	}
	created := func(m runtimev1.Message) {
		data, err := json.Marshal(m)
		Expect(err).NotTo(HaveOccurred())
		view.event(&runtimev1.Event{Type: runtimev1.EventMessageCreated, MessageID: m.ID, Data: data})
	}

	It("finishes a streamed answer without saying it twice", func() {
		delta("Good ")
		delta("mor")
		Expect(printed()).To(Equal("assistant: Good mor"))
		created(runtimev1.Message{ID: "1", Role: "assistant", Content: ptr.To("Good morning\nAda"), ToolCalls: []runtimev1.ToolCall{{Name: "f", Arguments: "{}"}}})
		created(runtimev1.Message{ID: "1", Role: "assistant", Content: ptr.To("Good morning\nAda")})
		Expect(printed()).To(Equal("assistant: Good morning\n  Ada\nassistant calls f({})\n"))
	})

	It("prints the whole answer when it differs from what was streamed", func() {
		delta("abc")
		created(runtimev1.Message{ID: "1", Role: "assistant", Content: ptr.To("xyz")})
		Expect(printed()).To(Equal("assistant: abc\nassistant: xyz\n"))
	})

	It("shows the ends of runs and what interrupts them", func() {
		delta("abc")
		view.event(&runtimev1.Event{Type: runtimev1.EventRunWaiting, Data: []byte(`{"reason":"WaitingForChild"}`)})
		view.event(&runtimev1.Event{Type: runtimev1.EventRunEnded, Data: []byte(`{"status":"failed","reason":"MaxStepsReached","message":"50 steps"}`)})
		view.event(&runtimev1.Event{Type: runtimev1.EventRunEnded, Data: []byte(`{"status":"succeeded","steps":1}`)})
		view.event(&runtimev1.Event{Type: runtimev1.EventTerminated})
		Expect(printed()).To(Equal("assistant: abc\nrun waits: WaitingForChild\nrun failed: MaxStepsReached: 50 steps\nrun succeeded after 1 step\nthe thread is terminated\n"))
	})

	It("leaves out silent messages unless asked", func() {
		created(runtimev1.Message{ID: "1", Role: "system", Silent: true, Content: ptr.To("psst")})
		Expect(printed()).To(BeEmpty())
		view.silent = true
		created(runtimev1.Message{ID: "1", Role: "system", Silent: true, Content: ptr.To("psst")})
		Expect(printed()).To(Equal("system (silent): psst\n"))
	})

	It("removes control characters from messages", func() {
		created(runtimev1.Message{ID: "1", Role: "user", Name: "\x1b[31mada\r", Content: ptr.To("a\x1b]0;title\x07b\u009b2J")})
		Expect(printed()).To(Equal("[31mada: a]0;titleb2J\n"))
	})

	It("shortens the results of tools", func() {
		created(runtimev1.Message{ID: "1", Role: "tool", Name: "f", ToolStatus: "error", Content: ptr.To(strings.Repeat("x\n", 300))})
		Expect(printed()).To(HavePrefix("f (failed): x x x"))
		Expect(printed()).To(HaveSuffix("…\n"))
		Expect(strings.Count(printed(), "\n")).To(Equal(1))
	})
})
