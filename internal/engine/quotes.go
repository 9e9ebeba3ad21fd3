package engine

import "github.com/skein-dev/skein/internal/engine/failure"

// quotes are the reasons of runs whose messages have text that a model or code wrote.
var quotes = map[string]bool{
	failure.ReasonSessionFailed: true, failure.ReasonInvalidAnswer: true, failure.ReasonInvalidInput: true, failure.ReasonInvalidOutput: true,
	failure.ReasonHandlerFailed: true, failure.ReasonHandlerTimeout: true, failure.ReasonRolledBack: true, failure.ReasonInvalidTools: true,
}

// Quotes reports whether the message of a run with this reason may have text of the conversation, so that it must stay out of
// objects (K8S-07).
func Quotes(reason string) bool { return quotes[reason] }
