package scheduledeffect

import "sigs.k8s.io/controller-runtime/pkg/handler"

// ByDueTime returns what enqueues ScheduledEffects.
func (r *Reconciler) ByDueTime() handler.EventHandler { return r.byDueTime() }
