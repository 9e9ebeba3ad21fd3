package store

// Reasons that the store itself writes into Run.Reason, Thread.TerminatedReason, StateSkipped.Reason and EffectSkip.Reason. They are declared in api/v1alpha1, which the store
// does not import; a test in hack/doctest compares the two.
const (
	ReasonParentTerminated = "ParentTerminated" // of a thread whose parent was terminated before it was created
	ReasonPurged           = "Purged"           // of a thread that is being purged
	ReasonDestroyed        = "Destroyed"        // of the run of a conversation that is destroyed
	ReasonThreadDeleted    = "ThreadDeleted"    // of the run of a thread whose object is deleted, and that is retained
	ReasonStateTooLarge    = "StateTooLarge"    // of state that was not saved
	ReasonMissed           = "Missed"           // of a due time whose firing could not begin in time
)
