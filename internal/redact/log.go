package redact

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
)

// LogSink is a log sink that redacts the secrets of all namespaces.
type LogSink struct {
	logr.LogSink
	secrets *Registry
}

// NewLogger wraps a logger.
func NewLogger(l logr.Logger, secrets *Registry) logr.Logger {
	return l.WithSink(&LogSink{l.GetSink(), secrets})
}

// Init implements logr.LogSink. It counts this wrapper as one call.
func (s *LogSink) Init(info logr.RuntimeInfo) {
	info.CallDepth++
	s.LogSink.Init(info)
}

// Info implements logr.LogSink.
func (s *LogSink) Info(level int, msg string, keysAndValues ...any) {
	s.LogSink.Info(level, s.secrets.AnyText(msg), s.values(keysAndValues)...)
}

// Error implements logr.LogSink.
func (s *LogSink) Error(err error, msg string, keysAndValues ...any) {
	if err != nil {
		if text := err.Error(); s.secrets.AnyText(text) != text {
			err = errors.New(s.secrets.AnyText(text))
		}
	}
	s.LogSink.Error(err, s.secrets.AnyText(msg), s.values(keysAndValues)...)
}

// WithValues implements logr.LogSink.
func (s *LogSink) WithValues(keysAndValues ...any) logr.LogSink {
	return &LogSink{s.LogSink.WithValues(s.values(keysAndValues)...), s.secrets}
}

// WithName implements logr.LogSink.
func (s *LogSink) WithName(name string) logr.LogSink {
	return &LogSink{s.LogSink.WithName(name), s.secrets}
}

// WithCallDepth implements logr.CallDepthLogSink.
func (s *LogSink) WithCallDepth(depth int) logr.LogSink {
	if inner, ok := s.LogSink.(logr.CallDepthLogSink); ok {
		return &LogSink{inner.WithCallDepth(depth), s.secrets}
	}
	return s
}

// values checks values in the form in which they will be written. Those that contain a secret become text.
func (s *LogSink) values(list []any) []any {
	if s.secrets == nil || s.secrets.known.Load() == 0 {
		return list
	}
	out := list
	for i, v := range list {
		var text string
		switch v := v.(type) {
		case nil, bool, int, int32, int64, uint64, float64:
			continue
		case string:
			text = v
		case error:
			text = v.Error()
		case fmt.Stringer:
			text = fmt.Sprint(v) // fmt handles nil pointers
		default:
			if data, err := json.Marshal(v); err == nil {
				text = string(data)
			} else {
				text = fmt.Sprintf("%+v", v)
			}
		}
		clean := s.secrets.AnyText(text)
		if clean == text {
			continue
		}
		if &out[0] == &list[0] {
			out = append([]any(nil), list...)
		}
		out[i] = clean
	}
	return out
}
