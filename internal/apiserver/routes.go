package apiserver

import (
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
	"github.com/skein-dev/skein/internal/apiserver/router"
)

// verbs maps the verb that was authorized to its handler.
type verbs = call.Verbs

// routes returns the whole API below threads. The verb watch is a GET below /watch/, which API servers do not time
// out.
func (h *handlers) routes() map[runtimev1.Subresource]router.Route {
	return map[runtimev1.Subresource]router.Route{
		"": {Kind: runtimev1.KindThreadRecord, Plain: verbs{"get": h.records.Get, "patch": h.records.Patch}},
		runtimev1.SubresourceMessages: {
			Kind:   runtimev1.KindMessageList,
			Plain:  verbs{"get": h.messages.List, "create": h.messages.Inject},
			Nested: verbs{"get": h.messages.Get, "patch": h.messages.Update, "delete": h.messages.Delete},
		},
		runtimev1.SubresourceQueue: {Kind: runtimev1.KindMessageList, Plain: verbs{"get": h.messages.ListQueue, "create": h.messages.Queue}},
		runtimev1.SubresourceFiles: {
			Kind: runtimev1.KindFileList, LongRunning: true,
			Plain:  verbs{"get": h.files.List},
			Nested: verbs{"get": h.files.Read, "update": h.files.Write, "delete": h.files.Delete},
		},
		runtimev1.SubresourceEvents:    {Kind: "Event", LongRunning: true, Plain: verbs{"get": h.streams.Events, "watch": h.streams.Events, "create": h.streams.Emit}},
		runtimev1.SubresourceLogs:      {Kind: "LogLine", LongRunning: true, Plain: verbs{"get": h.streams.Logs, "watch": h.streams.Logs}},
		runtimev1.SubresourceObserve:   {Kind: runtimev1.KindObservation, LongRunning: true, Plain: verbs{"get": h.streams.Observe, "watch": h.streams.Observe}},
		runtimev1.SubresourceFlush:     {Kind: runtimev1.KindFlushedVersion, Plain: verbs{"get": h.flush.Flush}},
		runtimev1.SubresourceRuns:      {Kind: runtimev1.KindRunList, Plain: verbs{"get": h.runs.List}, Nested: verbs{"get": h.runs.Get, "create": h.changeRun}},
		runtimev1.SubresourceApprovals: {Kind: runtimev1.KindApprovalList, Plain: verbs{"get": h.approvals.List}, Nested: verbs{"create": h.approvals.Decide}},
		runtimev1.SubresourceStop:      {Kind: runtimev1.KindThreadRecord, Plain: verbs{"create": h.life.Stop}},
		runtimev1.SubresourceDestroy:   {Kind: runtimev1.KindThreadRecord, Plain: verbs{"create": h.life.Destroy}},
		runtimev1.SubresourceContinue:  {Kind: runtimev1.KindThreadRecord, Plain: verbs{"create": h.life.Continue}},
		runtimev1.SubresourceTerminate: {Kind: runtimev1.KindThreadRecord, Plain: verbs{"create": h.life.Terminate}},
		runtimev1.SubresourceTruncate:  {Kind: "Truncated", Plain: verbs{"create": h.messages.Truncate}},
		runtimev1.SubresourceCompact:   {Kind: "CompactRequest", Plain: verbs{"create": h.messages.Compact}},
		runtimev1.SubresourceRelationships: {
			Kind: runtimev1.KindRelationshipList, Plain: verbs{"get": h.relationships.List, "create": h.relationships.Add},
		},
		runtimev1.SubresourceHandoff: {Kind: "HandedOff", LongRunning: true, Plain: verbs{"create": h.handoffs.Create}},
		runtimev1.SubresourceFork:    {Kind: runtimev1.KindThreadRecord, Plain: verbs{"create": h.forks.Fork}},
		runtimev1.SubresourceKV: {
			Kind: "Value", Keyed: true,
			Plain:  verbs{"get": h.values.List},
			Nested: verbs{"get": h.values.Get, "update": h.values.Put, "delete": h.values.Delete},
		},
		runtimev1.SubresourceEnv: {
			Kind: runtimev1.KindEnvVarList, Secret: true,
			Plain:  verbs{"get": h.env.List},
			Nested: verbs{"get": h.env.Get, "update": h.env.Put, "delete": h.env.Delete},
		},
		runtimev1.SubresourceCode: {Kind: runtimev1.KindCodeResult, LongRunning: true, Plain: verbs{"create": h.code.Run, "get": h.code.Attend, "watch": h.code.Attend}},
		runtimev1.SubresourceEffects: {
			Kind:   runtimev1.KindEffectList,
			Plain:  verbs{"get": h.effects.List, "create": h.effects.Schedule},
			Nested: verbs{"delete": h.effects.Remove},
		},
		runtimev1.SubresourceChildren: {Kind: runtimev1.KindChildList, Plain: verbs{"get": h.family.ListChildren}, Nested: verbs{"get": h.family.GetChild}},
		runtimev1.SubresourceSkills:   {Kind: "SkillActivation", Plain: verbs{"create": h.tools.ActivateSkill}},
		runtimev1.SubresourceLease: {
			Kind:  runtimev1.KindLease,
			Plain: verbs{"create": h.leases.Acquire, "update": h.leases.Renew, "delete": h.leases.Release},
		},
		runtimev1.SubresourceParent:      {Kind: runtimev1.KindThreadRecord, Plain: verbs{"get": h.family.GetParent}},
		runtimev1.SubresourceNotify:      {Kind: "Notification", Plain: verbs{"create": h.family.NotifyParent}},
		runtimev1.SubresourceStatus:      {Kind: "RegistryStatus", Plain: verbs{"get": h.family.GetStatus, "update": h.family.SetStatus}},
		runtimev1.SubresourceTools:       {Kind: runtimev1.KindToolResult, LongRunning: true, Nested: verbs{"create": h.tools.Call}},
		runtimev1.SubresourceDefinitions: {Kind: runtimev1.KindDefinitionNames, Nested: verbs{"get": h.tools.Definitions}},
		runtimev1.SubresourceState: {
			Kind: runtimev1.KindStateList, Keyed: true,
			Plain:  verbs{"get": h.state.List, "create": h.state.Change},
			Nested: verbs{"get": h.state.Get, "update": h.state.Put, "delete": h.state.Delete},
		},
		runtimev1.SubresourceUsage:     {Kind: runtimev1.KindUsage, Plain: verbs{"get": h.runs.GetUsage}, Nested: verbs{"get": h.runs.ListUsage}},
		runtimev1.SubresourceMemory:    {Kind: runtimev1.KindMemoryHitList, Plain: verbs{"get": h.searches.Memory}},
		runtimev1.SubresourceExport:    {Kind: "Export", LongRunning: true, Plain: verbs{"get": h.transfers.Export}},
		runtimev1.SubresourceImport:    {Kind: runtimev1.KindImportResult, LongRunning: true, Plain: verbs{"create": h.transfers.Import}},
		runtimev1.SubresourceExecution: {Kind: runtimev1.KindExecutionState, Plain: verbs{"get": h.runs.GetExecution}},
		runtimev1.SubresourceEndpoints: {Kind: "Endpoint", LongRunning: true, Foreign: true, Plain: anyMethod(h.endpoints.Serve), Nested: anyMethod(h.endpoints.Serve)},
	}
}

// changeRun answers POST runs/{id}/cancel and POST runs/{id}/rerun.
func (h *handlers) changeRun(c *call.Call) error {
	if len(c.Path) == 2 && c.Path[1] == runtimev1.ActionRerun {
		return h.forks.Rerun(c)
	}
	return h.runs.Cancel(c)
}

// views returns the part of the API that is not below a thread.
func (h *handlers) views() map[runtimev1.View]router.View {
	return map[runtimev1.View]router.View{
		runtimev1.ViewKVStores: {
			Kind: runtimev1.KindKeyList, Namespaced: true,
			Below: map[string]router.Route{"values": {
				Kind: runtimev1.KindValueRecord, Keyed: true,
				Plain:  verbs{"get": h.kvStores.List},
				Nested: verbs{"get": h.kvStores.Get, "update": h.kvStores.Put, "delete": h.kvStores.Delete},
			}},
		},
		runtimev1.ViewLifecycle: {
			Kind: runtimev1.KindLifecycleList, Namespaced: true, LongRunning: true,
			Collection: verbs{"list": h.streams.ListLifecycle, "watch": h.streams.WatchLifecycle},
			Across:     verbs{"list": h.streams.ListLifecycle, "watch": h.streams.WatchLifecycle},
		},
		runtimev1.ViewUsage:    {Kind: runtimev1.KindUsage, Namespaced: true, Collection: verbs{"list": h.runs.NamespaceUsage}},
		runtimev1.ViewSearches: {Kind: runtimev1.KindSearchHitList, Collection: verbs{"list": h.searches.Messages}},
		runtimev1.ViewLookups:  {Kind: runtimev1.KindThreadRecord, Named: verbs{"get": h.lookups.Get}},
		runtimev1.ViewRetained: {
			Kind: runtimev1.KindRetainedList, Namespaced: true,
			Collection: verbs{"list": h.retained.List}, Named: verbs{"delete": h.retained.Purge},
		},
		runtimev1.ViewFirings: {
			Kind: runtimev1.KindFiringList, Namespaced: true, Named: verbs{"get": h.effects.Firings},
			Below: map[string]router.Route{runtimev1.ActionCancelFiring: {Kind: "Firing", Plain: verbs{"create": h.effects.CancelFiring}}},
		},
		runtimev1.ViewBackups: {
			Kind: runtimev1.KindBackupSummary, Namespaced: true, LongRunning: true,
			Collection: verbs{"list": h.backups.Read, "watch": h.backups.Read},
		},
		runtimev1.ViewRestores: {
			Kind: runtimev1.KindRestoreState, Namespaced: true, LongRunning: true,
			Collection: verbs{"create": h.restores.Begin}, Named: verbs{"delete": h.restores.Abandon},
			Below: map[string]router.Route{
				"rows":     {Kind: runtimev1.KindRestoreState, Plain: verbs{"create": h.restores.Rows}},
				"contents": {Kind: runtimev1.KindRestoreState, Nested: verbs{"update": h.restores.Contents}},
				"finish":   {Kind: runtimev1.KindRestoreState, Plain: verbs{"create": h.restores.Finish}},
				"effects":  {Kind: runtimev1.KindRestoreState, Plain: verbs{"create": h.restores.Effects}},
			},
		},
		runtimev1.ViewOrphans: {
			Kind: runtimev1.KindRetainedList, Namespaced: true,
			Collection: verbs{"list": h.orphans.List}, Named: verbs{"create": h.orphans.Retain},
		},
		runtimev1.ViewWebhookDeliveries: {
			Kind: runtimev1.KindWebhookDelivery, Namespaced: true,
			Collection: verbs{"list": h.webhooks.List},
			Below:      map[string]router.Route{runtimev1.ActionRedeliver: {Kind: runtimev1.KindWebhookDelivery, Plain: verbs{"create": h.webhooks.Redeliver}}},
		},
		runtimev1.ViewHistory: {
			Kind: runtimev1.KindThreadHistory, Namespaced: true, LongRunning: true,
			Collection: verbs{"list": h.history.List, "watch": h.streams.WatchHistory},
			Across:     verbs{"list": h.history.List, "watch": h.streams.WatchHistory},
		},
	}
}

// anyMethod returns the same handler for every verb that authorization derives from a method.
func anyMethod(h call.Handler) verbs {
	return verbs{"get": h, "create": h, "update": h, "patch": h, "delete": h}
}
