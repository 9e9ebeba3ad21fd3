package engine

import (
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

// quotes are the reasons of runs whose messages have text that a model or code wrote.
var quotes = map[string]bool{
	skeinv1.ReasonSessionFailed: true, skeinv1.ReasonInvalidAnswer: true, skeinv1.ReasonInvalidInput: true, skeinv1.ReasonInvalidOutput: true,
	skeinv1.ReasonHandlerFailed: true, skeinv1.ReasonHandlerTimeout: true, skeinv1.ReasonRolledBack: true, skeinv1.ReasonInvalidTools: true,
	skeinv1.ReasonInvalidArguments: true,
}

// ShownMessage returns the message of a run as objects show it: without text of the conversation, which must stay out of them (K8S-07). What
// a provider says of a request may repeat the request.
func ShownMessage(run *store.Run) string {
	if quotes[run.Reason] {
		return "the run has the message: see kubectl skein runs"
	}
	return model.Unsaid(run.Message, "kubectl skein runs shows what it said")
}
