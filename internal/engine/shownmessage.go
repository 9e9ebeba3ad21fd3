package engine

import (
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

// ownWords are the reasons of runs whose messages are texts of Skein and of people, beside what a provider said. Those of any other reason
// may have text that a model or code wrote. Add a new one only if no such text, and no name that code chooses, can be in its messages.
var ownWords = map[string]bool{
	"":                             true, // a run that succeeded, or that waits for a child
	skeinv1.ReasonModelUnavailable: true, skeinv1.ReasonModelTimeout: true, skeinv1.ReasonModelBadAnswer: true, skeinv1.ReasonModelRefused: true,
	skeinv1.ReasonModelFailed: true, skeinv1.ReasonModelInvalid: true, skeinv1.ReasonContextTooLarge: true,
	skeinv1.ReasonMaxStepsReached: true, skeinv1.ReasonMaxSessionTurnsReached: true, skeinv1.ReasonMaxTokensReached: true,
	skeinv1.ReasonMaxCostReached: true, skeinv1.ReasonMaxDurationReached: true, skeinv1.ReasonInvalidLimits: true,
	skeinv1.ReasonQuotaExceeded: true, skeinv1.ReasonInternalError: true,
	skeinv1.ReasonStoppedByUser: true, skeinv1.ReasonCancelled: true, skeinv1.ReasonInterrupted: true,
	skeinv1.ReasonTerminated: true, skeinv1.ReasonDestroyed: true, skeinv1.ReasonThreadDeleted: true,
	skeinv1.ReasonWaitingForApproval: true, skeinv1.ReasonWaitingForTime: true, skeinv1.ReasonEnvMissing: true,
}

// ShownMessage returns the message of a run as objects show it: without text of the conversation, which must stay out of them (K8S-07). What
// a provider says of a request may repeat the request.
func ShownMessage(run *store.Run) string {
	if run.Message != "" && !ownWords[run.Reason] {
		return "the run has the message: see kubectl skein runs"
	}
	return model.Unsaid(run.Message, "kubectl skein runs shows what it said")
}
