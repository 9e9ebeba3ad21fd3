package engine_test

import (
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/engine"
	"github.com/skein-dev/skein/internal/engine/failure"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/store"
)

var _ = Describe("What objects show of the message of a run", Label("K8S-07"), func() {
	shown := func(reason, message string) string {
		return engine.ShownMessage(&store.Run{Reason: reason, Message: message})
	}

	DescribeTable("is nothing of it where a model or code may have written it", func(reason string) {
		Expect(shown(reason, "the answer is SWORDFISH")).To(Equal("the run has the message: see kubectl skein runs"))
	},
		Entry(nil, skeinv1.ReasonSessionFailed),
		Entry(nil, skeinv1.ReasonInvalidAnswer),
		Entry(nil, skeinv1.ReasonInvalidInput),
		Entry(nil, skeinv1.ReasonInvalidOutput),
		Entry(nil, skeinv1.ReasonHandlerFailed),
		Entry(nil, skeinv1.ReasonHandlerTimeout),
		Entry(nil, skeinv1.ReasonRolledBack),
		Entry(nil, skeinv1.ReasonInvalidTools),
		Entry(nil, skeinv1.ReasonInvalidArguments),
		Entry("EnvUnreadable: code chooses the names of variables", skeinv1.ReasonEnvUnreadable),
		Entry("a reason of a newer release", "NewerReason"),
	)

	DescribeTable("is all that Skein or a person says, without what a provider said", func(reason string) {
		Expect(shown(reason, "what to do")).To(Equal("what to do"))
		Expect(shown(reason, "it failed"+model.Said+"SWORDFISH")).To(Equal("it failed; kubectl skein runs shows what it said"))
	},
		Entry("no reason", ""),
		Entry(nil, skeinv1.ReasonModelUnavailable),
		Entry(nil, skeinv1.ReasonModelTimeout),
		Entry(nil, skeinv1.ReasonModelBadAnswer),
		Entry(nil, skeinv1.ReasonModelRefused),
		Entry(nil, skeinv1.ReasonModelFailed),
		Entry(nil, skeinv1.ReasonModelInvalid),
		Entry(nil, skeinv1.ReasonContextTooLarge),
		Entry(nil, skeinv1.ReasonMaxStepsReached),
		Entry(nil, skeinv1.ReasonMaxSessionTurnsReached),
		Entry(nil, skeinv1.ReasonMaxTokensReached),
		Entry(nil, skeinv1.ReasonMaxCostReached),
		Entry(nil, skeinv1.ReasonMaxDurationReached),
		Entry(nil, skeinv1.ReasonInvalidLimits),
		Entry(nil, skeinv1.ReasonQuotaExceeded),
		Entry(nil, skeinv1.ReasonInternalError),
		Entry(nil, skeinv1.ReasonStoppedByUser),
		Entry(nil, skeinv1.ReasonCancelled),
		Entry(nil, skeinv1.ReasonInterrupted),
		Entry(nil, skeinv1.ReasonTerminated),
		Entry(nil, skeinv1.ReasonDestroyed),
		Entry(nil, skeinv1.ReasonThreadDeleted),
		Entry(nil, skeinv1.ReasonWaitingForApproval),
		Entry(nil, skeinv1.ReasonWaitingForTime),
		Entry(nil, skeinv1.ReasonEnvMissing),
	)

	It("leaves out an error that is not of a model", func(ctx SpecContext) {
		var f *failure.Error
		Expect(errors.As(failure.OfModel(ctx, errors.New("SWORDFISH")), &f)).To(BeTrue())
		Expect(f.Message).To(ContainSubstring("SWORDFISH"))
		Expect(shown(f.Reason, f.Message)).To(Equal("the model call failed; kubectl skein runs shows what it said"))
	})

	It("is nothing where there is none", func() {
		Expect(shown("NewerReason", "")).To(BeEmpty())
	})
})
