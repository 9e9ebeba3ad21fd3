package wire

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/skein-dev/skein/internal/model"
)

// codeOf returns the code of failures that the rest of Skein distinguishes.
func codeOf(f Failure) model.Code {
	switch {
	case saysTooLong(f):
		return model.CodeContextLength
	case f.Code == "content_filter", f.Code == "content_policy_violation":
		return model.CodeFiltered
	}
	return ""
}

// tooLongWords occur in what providers and model servers say about a request that is too long.
var tooLongWords = []string{
	"maximum context length", "context window", "context size", "context limit", "prompt is too long", "input is too long",
	"maximum prompt length", "maximum number of tokens", "reduce the length",
}

func saysTooLong(f Failure) bool {
	switch f.Code {
	case "context_length_exceeded", "request_too_large", "exceed_context_size_error":
		return true
	case "rate_limit_exceeded", "rate_limit_error": // a limit of tokens per minute is something else
		return false
	}
	said := strings.ToLower(f.Said)
	for _, words := range tooLongWords {
		if strings.Contains(said, words) {
			return true
		}
	}
	return false
}

// What providers say about how long a request may be, and about how long it was without room for an answer.
var (
	limits = []*regexp.Regexp{
		regexp.MustCompile(`[0-9] \+ [0-9,]+ > ([0-9][0-9,]*)`),
		regexp.MustCompile(`(?i)[0-9][0-9,]* tokens? > ([0-9][0-9,]*)`),
		regexp.MustCompile(`(?i)maximum (?:context|prompt) length (?:is|of) ([0-9][0-9,]*)`),
		regexp.MustCompile(`(?i)context (?:window|size|limit)(?: size)?(?: is| of|:)? \(?([0-9][0-9,]*)`),
		regexp.MustCompile(`(?i)maximum number of tokens allowed:? \(?([0-9][0-9,]*)`),
	}
	counts = []*regexp.Regexp{
		regexp.MustCompile(`([0-9][0-9,]*) \+ [0-9,]+ > [0-9]`),
		regexp.MustCompile(`(?i)([0-9][0-9,]*) tokens? > [0-9]`),
		regexp.MustCompile(`(?i)resulted in ([0-9][0-9,]*) tokens`),
		regexp.MustCompile(`(?i)([0-9][0-9,]*) (?:in the messages|input tokens)`),
		regexp.MustCompile(`(?i)(?:token count|request) \(?([0-9][0-9,]*)(?: tokens)?\)? exceeds`),
	}
)

// measure reads the limit and the count, if the provider names them.
func measure(e *model.Error, said string) {
	if e.Code == model.CodeContextLength {
		e.Limit, e.Counted = figure(limits, said), figure(counts, said)
	}
}

func figure(patterns []*regexp.Regexp, said string) int64 {
	for _, p := range patterns {
		if m := p.FindStringSubmatch(said); m != nil {
			if n, err := strconv.ParseInt(strings.ReplaceAll(m[1], ",", ""), 10, 64); err == nil {
				return n
			}
		}
	}
	return 0
}
