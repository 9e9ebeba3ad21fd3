package apiserver

import (
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
)

// routes returns the whole API below threads. The verb watch is a GET below /watch/, which API servers do not time
// out.
func (h *handlers) routes() map[runtimev1.Subresource]route {
	return map[runtimev1.Subresource]route{
		"": {kind: runtimev1.KindThreadRecord, plain: call.Verbs{"get": h.records.Get, "patch": h.records.Patch}},
		runtimev1.SubresourceMessages: {
			kind:   runtimev1.KindMessageList,
			plain:  call.Verbs{"get": h.messages.List, "create": h.messages.Inject},
			nested: call.Verbs{"get": h.messages.Get, "patch": h.messages.Update, "delete": h.messages.Delete},
		},
		runtimev1.SubresourceQueue: {kind: runtimev1.KindMessageList, plain: call.Verbs{"get": h.messages.ListQueue, "create": h.messages.Queue}},
		runtimev1.SubresourceFiles: {
			kind: runtimev1.KindFileList, longRunning: true,
			plain:  call.Verbs{"get": h.files.List},
			nested: call.Verbs{"get": h.files.Read, "update": h.files.Write, "delete": h.files.Delete},
		},
		runtimev1.SubresourceEvents:    {kind: "Event", longRunning: true, plain: call.Verbs{"get": h.streams.Events, "watch": h.streams.Events, "create": h.streams.Emit}},
		runtimev1.SubresourceLogs:      {kind: "LogLine", longRunning: true, plain: call.Verbs{"get": h.streams.Logs, "watch": h.streams.Logs}},
		runtimev1.SubresourceRuns:      {kind: runtimev1.KindRunList, plain: call.Verbs{"get": h.runs.List}, nested: call.Verbs{"get": h.runs.Get, "create": h.runs.Cancel}},
		runtimev1.SubresourceApprovals: {kind: runtimev1.KindApprovalList, plain: call.Verbs{"get": h.approvals.List}, nested: call.Verbs{"create": h.approvals.Decide}},
		runtimev1.SubresourceStop:      {kind: runtimev1.KindThreadRecord, plain: call.Verbs{"create": h.life.Stop}},
		runtimev1.SubresourceDestroy:   {kind: runtimev1.KindThreadRecord, plain: call.Verbs{"create": h.life.Destroy}},
		runtimev1.SubresourceContinue:  {kind: runtimev1.KindThreadRecord, plain: call.Verbs{"create": h.life.Continue}},
		runtimev1.SubresourceTerminate: {kind: runtimev1.KindThreadRecord, plain: call.Verbs{"create": h.life.Terminate}},
		runtimev1.SubresourceTruncate:  {kind: "Truncated", plain: call.Verbs{"create": h.messages.Truncate}},
		runtimev1.SubresourceRelationships: {
			kind: runtimev1.KindRelationshipList, plain: call.Verbs{"get": h.relationships.List, "create": h.relationships.Add},
		},
		runtimev1.SubresourceKV: {
			kind:   "Value",
			plain:  call.Verbs{"get": h.values.List},
			nested: call.Verbs{"get": h.values.Get, "update": h.values.Put, "delete": h.values.Delete},
		},
		runtimev1.SubresourceEnv: {
			kind: runtimev1.KindEnvVarList, secret: true,
			plain:  call.Verbs{"get": h.env.List},
			nested: call.Verbs{"get": h.env.Get, "update": h.env.Put, "delete": h.env.Delete},
		},
		runtimev1.SubresourceCode: {kind: runtimev1.KindCodeResult, longRunning: true, plain: call.Verbs{"create": h.code.Run, "get": h.code.Attend, "watch": h.code.Attend}},
		runtimev1.SubresourceEffects: {
			kind:   runtimev1.KindEffectList,
			plain:  call.Verbs{"get": h.effects.List, "create": h.effects.Schedule},
			nested: call.Verbs{"delete": h.effects.Remove},
		},
		runtimev1.SubresourceChildren: {kind: runtimev1.KindChildList, plain: call.Verbs{"get": h.family.ListChildren}, nested: call.Verbs{"get": h.family.GetChild}},
		runtimev1.SubresourceSkills:   {kind: "SkillActivation", plain: call.Verbs{"create": h.tools.ActivateSkill}},
		runtimev1.SubresourceLease: {
			kind:  runtimev1.KindLease,
			plain: call.Verbs{"create": h.leases.Acquire, "update": h.leases.Renew, "delete": h.leases.Release},
		},
		runtimev1.SubresourceParent:      {kind: runtimev1.KindThreadRecord, plain: call.Verbs{"get": h.family.GetParent}},
		runtimev1.SubresourceNotify:      {kind: "Notification", plain: call.Verbs{"create": h.family.NotifyParent}},
		runtimev1.SubresourceStatus:      {kind: "RegistryStatus", plain: call.Verbs{"get": h.family.GetStatus, "update": h.family.SetStatus}},
		runtimev1.SubresourceTools:       {kind: runtimev1.KindToolResult, longRunning: true, nested: call.Verbs{"create": h.tools.Call}},
		runtimev1.SubresourceDefinitions: {kind: runtimev1.KindDefinitionNames, nested: call.Verbs{"get": h.tools.Definitions}},
		runtimev1.SubresourceState: {
			kind:   runtimev1.KindStateList,
			plain:  call.Verbs{"get": h.state.List, "create": h.state.Change},
			nested: call.Verbs{"get": h.state.Get, "update": h.state.Put, "delete": h.state.Delete},
		},
		runtimev1.SubresourceUsage:     {kind: runtimev1.KindUsage, plain: call.Verbs{"get": h.runs.GetUsage}, nested: call.Verbs{"get": h.runs.ListUsage}},
		runtimev1.SubresourceMemory:    {kind: runtimev1.KindMemoryHitList, plain: call.Verbs{"get": h.searches.Memory}},
		runtimev1.SubresourceExport:    {kind: "Export", longRunning: true, plain: call.Verbs{"get": h.transfers.Export}},
		runtimev1.SubresourceImport:    {kind: runtimev1.KindImportResult, longRunning: true, plain: call.Verbs{"create": h.transfers.Import}},
		runtimev1.SubresourceExecution: {kind: runtimev1.KindExecutionState, plain: call.Verbs{"get": h.runs.GetExecution}},
		runtimev1.SubresourceEndpoints: {kind: "Endpoint", longRunning: true, foreign: true, plain: anyMethod(h.endpoints.Serve), nested: anyMethod(h.endpoints.Serve)},
	}
}

// views returns the part of the API that is not below a thread.
func (h *handlers) views() map[runtimev1.View]view {
	return map[runtimev1.View]view{
		runtimev1.ViewKVStores: {
			kind: runtimev1.KindKeyList, namespaced: true,
			below: map[string]route{"values": {
				kind:   runtimev1.KindValueRecord,
				plain:  call.Verbs{"get": h.kvStores.List},
				nested: call.Verbs{"get": h.kvStores.Get, "update": h.kvStores.Put, "delete": h.kvStores.Delete},
			}},
		},
		runtimev1.ViewLifecycle: {
			kind: runtimev1.KindLifecycleList, namespaced: true, longRunning: true,
			collection: call.Verbs{"list": h.streams.ListLifecycle, "watch": h.streams.WatchLifecycle},
			across:     call.Verbs{"list": h.streams.ListLifecycle, "watch": h.streams.WatchLifecycle},
		},
		runtimev1.ViewUsage:    {kind: runtimev1.KindUsage, namespaced: true, collection: call.Verbs{"list": h.runs.NamespaceUsage}},
		runtimev1.ViewSearches: {kind: runtimev1.KindSearchHitList, collection: call.Verbs{"list": h.searches.Messages}},
		runtimev1.ViewLookups:  {kind: runtimev1.KindThreadRecord, named: call.Verbs{"get": h.lookups.Get}},
		runtimev1.ViewRetained: {
			kind: runtimev1.KindRetainedList, namespaced: true,
			collection: call.Verbs{"list": h.retained.List}, named: call.Verbs{"delete": h.retained.Purge},
		},
		runtimev1.ViewHistory: {
			kind: runtimev1.KindThreadHistory, namespaced: true,
			collection: call.Verbs{"list": h.history.List}, across: call.Verbs{"list": h.history.List},
		},
	}
}

// anyMethod returns the same handler for every verb that authorization derives from a method.
func anyMethod(h call.Handler) call.Verbs {
	return call.Verbs{"get": h, "create": h, "update": h, "patch": h, "delete": h}
}
