package transcript

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skein-dev/skein/internal/store"
)

func TestTheSizeOfAConversationIsThatOfItsMessages(t *testing.T) {
	c := New()
	of := func(seq int64, bytes int) store.Message {
		text := strings.Repeat("x", bytes)
		return store.Message{ID: fmt.Sprint("m", seq), Seq: seq, Content: &text}
	}
	check := func(what string) {
		t.Helper()
		want := 0
		for i := range c.Messages {
			want += int(c.Messages[i].Bytes())
		}
		if got := c.size(); got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	check("empty")
	c.Add(of(2, 10))
	check("one")
	c.Add(of(5, 1000))
	c.Append(of(6, 20))
	check("more at the end")
	c.Add(of(3, 300))
	check("one between")
	c.Messages = append([]store.Message(nil), c.Messages[1:]...)
	c.sort()
	check("without the oldest")
	c.Add(of(9, 7))
	check("one more")
}
