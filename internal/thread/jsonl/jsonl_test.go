package jsonl_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/skein-dev/skein/internal/thread/jsonl"
)

const at = `"2026-01-31T12:00:00.000Z"`

// lines are seeds: exported lines, lines of older programs, and lines that are wrong in every way.
var lines = []string{
	`{"agentId":"a","sessionId":"sess_1","taskId":"t","title":"T","createdAt":` + at + `,"updatedAt":` + at + `}`,
	`{"agentId":"a","channel":"telegram","createdAt":"2026-01-31T12:00:00+02:00"}`,
	`{"agentId":"a","createdAt":"0000-01-01T00:00:00.000Z"}`,
	`{"type":"message","role":"user","text":"hi","timestamp":` + at + `}`,
	`{"type":"message","role":"system","text":"","timestamp":"2026-01-31T12:00:00.123456Z","name":"n","silent":true}`,
	`{"role":"assistant","text":"<&>\u2028 \ud83d\ude00","timestamp":` + at + `}`,
	`{"role":"assistant","text":"\u0000","timestamp":` + at + `}`,
	`{"role":"assistant","text":"\ud800","timestamp":` + at + `}`,
	`{"role":"tool","text":"x","timestamp":` + at + `}`,
	`{"role":"user","text":"x"}`, `{"role":"user","timestamp":` + at + `}`, `{"role":"user","text":null,"timestamp":` + at + `}`,
	`{"type":"tool_use","name":"look","input":{"a": [1, 1e400, {}]},"timestamp":` + at + `}`,
	`{"type":"tool_use","name":"look","input":null,"timestamp":` + at + `}`, `{"type":"tool_use","input":{},"timestamp":` + at + `}`,
	`{"type":"assistant_text","text":"so","timestamp":` + at + `,"more":1}`,
	`{"type":"result","cost":0.01,"durationMs":12,"turns":2,"inputTokens":1,"outputTokens":2,"cacheReadTokens":0,"timestamp":` + at + `}`,
	`{"type":"message","role":"assistant","text":"x","timestamp":` + at + `,"side":"b"}`, `{"role":"assistant","text":"x","timestamp":` + at + `,"side":"c"}`,
	`{"type":"assistant_text","text":"so","timestamp":` + at + `,"side":"both"}`,
	`{"type":"result","turns":1.5,"timestamp":` + at + `}`, `{"type":"result","timestamp":null}`,
	`{"type":"dance","timestamp":` + at + `}`, `{"type":1,"timestamp":` + at + `}`, `{"TYPE":"result","type":"message","timestamp":` + at + `}`,
	``, `null`, `[]`, `{`, `{}`, `"text"`, `{}{}`, "{\"role\":\"user\",\"text\":\"\xff\",\"timestamp\":" + at + "}",
	`{"role":"user","text":"x","timestamp":"9999-12-31T23:59:59.9999999Z"}`, `{"role":"user","text":"x","timestamp":"yesterday"}`,
	strings.Repeat(`{"a":`, 200) + `1` + strings.Repeat(`}`, 200),
}

// FuzzParseLine checks that every line is accepted, or refused with a reason, and that an accepted line is accepted
// again, as the same, in the form in which it is stored (LOG-02).
func FuzzParseLine(f *testing.F) {
	for _, l := range lines {
		f.Add([]byte(l))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := jsonl.ParseLine(data)
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Fatalf("%q is refused without a reason", data)
			}
			return
		}
		again, err := jsonl.ParseLine(l.Raw)
		if err != nil {
			t.Fatalf("%q was taken, kept as %q, and that is refused: %v", data, l.Raw, err)
		}
		if again.Type != l.Type || again.Timestamp != l.Timestamp || !bytes.Equal(again.Raw, l.Raw) {
			t.Fatalf("%q became %+v, then %+v", data, l, again)
		}
		if bytes.ContainsAny(l.Raw, "\n\r") {
			t.Fatalf("%q is kept on more than one line: %q", data, l.Raw)
		}
		if (l.Message != nil) != (l.Type == jsonl.TypeMessage) {
			t.Fatalf("%q is a %s, and has message %+v", data, l.Type, l.Message)
		}
		if l.Message == nil {
			return
		}
		if m := l.Message; !utf8.ValidString(m.Text) || strings.ContainsRune(m.Text+m.Name, 0) {
			t.Fatalf("%q gave the text %q and the name %q, which cannot be kept", data, m.Text, m.Name)
		}
		written := encode(t, l.Message)
		if back, err := jsonl.ParseLine(written); err != nil || *back.Message != *l.Message {
			t.Fatalf("%q is written %s, and read %+v, %v", data, written, back, err)
		}
	})
}

// FuzzParseManifest checks that an accepted manifest is written and read as the same (LOG-01).
func FuzzParseManifest(f *testing.F) {
	for _, l := range lines {
		f.Add([]byte(l))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := jsonl.ParseManifest(data)
		if err != nil {
			if strings.TrimSpace(err.Error()) == "" {
				t.Fatalf("%q is refused without a reason", data)
			}
			return
		}
		written := encode(t, m)
		if back, err := jsonl.ParseManifest(written); err != nil || *back != *m {
			t.Fatalf("%q is written %s, and read %+v, %v", data, written, back, err)
		}
	})
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
