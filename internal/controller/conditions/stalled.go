package conditions

import skeinv1 "github.com/skein-dev/skein/api/v1alpha1"

// stalling are the reasons of a Ready condition that waiting does not change: a person must edit an object.
// Everything else heals by itself: a reference that does not resolve yet, a failure of Skein itself, pods that do not
// start. Pods that the API server refuses stay refused.
var stalling = map[string]bool{
	skeinv1.ReasonInvalidSpec:        true,
	skeinv1.ReasonInvalidArguments:   true,
	skeinv1.ReasonInvalidSchema:      true,
	skeinv1.ReasonInvalidPlaceholder: true,
	skeinv1.ReasonInvalidScript:      true,
	skeinv1.ReasonIncludeCycle:       true,
	skeinv1.ReasonCompileFailed:      true,
	skeinv1.ReasonInvalidCode:        true,
	skeinv1.ReasonAddressForbidden:   true,
	skeinv1.ReasonPathTaken:          true,
	skeinv1.ReasonNotExposed:         true,
	skeinv1.ReasonPodsRefused:        true,
	skeinv1.ReasonHandoffRefused:     true,
	skeinv1.ReasonForkPointLost:      true,
	skeinv1.ReasonFailed:             true,
}

// Stalls reports whether an object that is not Ready for this reason stays so until a person edits it or an object
// that it names.
func Stalls(reason string) bool { return stalling[reason] }
