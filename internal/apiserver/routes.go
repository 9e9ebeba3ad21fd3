package apiserver

import (
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/call"
)

// routes returns the whole API below threads. The verb watch is a GET below /watch/, which API servers do not time
// out.
func (h *handlers) routes() map[runtimev1.Subresource]route {
	return map[runtimev1.Subresource]route{
		"": {kind: runtimev1.KindThreadRecord, plain: call.Verbs{"get": h.records.getThread, "patch": h.records.patchThread}},
		runtimev1.SubresourceMessages: {
			kind:   runtimev1.KindMessageList,
			plain:  call.Verbs{"get": h.messages.listMessages, "create": h.messages.injectMessage},
			nested: call.Verbs{"get": h.messages.getMessage, "patch": h.messages.updateMessage, "delete": h.messages.deleteMessage},
		},
		runtimev1.SubresourceQueue: {kind: runtimev1.KindMessageList, plain: call.Verbs{"get": h.messages.listQueue, "create": h.messages.queueMessage}},
		runtimev1.SubresourceFiles: {
			kind: runtimev1.KindFileList, longRunning: true,
			plain:  call.Verbs{"get": h.files.listFiles},
			nested: call.Verbs{"get": h.files.readFile, "update": h.files.writeFile, "delete": h.files.deleteFile},
		},
		runtimev1.SubresourceEvents:    {kind: "Event", longRunning: true, plain: call.Verbs{"get": h.streams.streamEvents, "watch": h.streams.streamEvents, "create": h.streams.emitEvent}},
		runtimev1.SubresourceLogs:      {kind: "LogLine", longRunning: true, plain: call.Verbs{"get": h.streams.streamLogs, "watch": h.streams.streamLogs}},
		runtimev1.SubresourceRuns:      {kind: runtimev1.KindRunList, plain: call.Verbs{"get": h.runs.listRuns}, nested: call.Verbs{"get": h.runs.getRun, "create": h.runs.cancelRun}},
		runtimev1.SubresourceApprovals: {kind: runtimev1.KindApprovalList, plain: call.Verbs{"get": h.approvals.listApprovals}, nested: call.Verbs{"create": h.approvals.decideApproval}},
		runtimev1.SubresourceStop:      {kind: runtimev1.KindThreadRecord, plain: call.Verbs{"create": h.life.stopThread}},
		runtimev1.SubresourceDestroy:   {kind: runtimev1.KindThreadRecord, plain: call.Verbs{"create": h.life.destroyThread}},
		runtimev1.SubresourceContinue:  {kind: runtimev1.KindThreadRecord, plain: call.Verbs{"create": h.life.continueThread}},
		runtimev1.SubresourceTerminate: {kind: runtimev1.KindThreadRecord, plain: call.Verbs{"create": h.life.terminateThread}},
		runtimev1.SubresourceTruncate:  {kind: "Truncated", plain: call.Verbs{"create": h.messages.truncateThread}},
		runtimev1.SubresourceRelationships: {
			kind: runtimev1.KindRelationshipList, plain: call.Verbs{"get": h.relationships.listRelationships, "create": h.relationships.addRelationship},
		},
		runtimev1.SubresourceKV: {
			kind:   "Value",
			plain:  call.Verbs{"get": h.values.listKeys},
			nested: call.Verbs{"get": h.values.getValue, "update": h.values.putValue, "delete": h.values.deleteValue},
		},
		runtimev1.SubresourceEnv: {
			kind: runtimev1.KindEnvVarList, secret: true,
			plain:  call.Verbs{"get": h.env.listEnv},
			nested: call.Verbs{"get": h.env.getEnv, "update": h.env.putEnv, "delete": h.env.deleteEnv},
		},
		runtimev1.SubresourceCode: {kind: runtimev1.KindCodeResult, longRunning: true, plain: call.Verbs{"create": h.code.runCode, "get": h.code.attendCode, "watch": h.code.attendCode}},
		runtimev1.SubresourceEffects: {
			kind:   runtimev1.KindEffectList,
			plain:  call.Verbs{"get": h.effects.listEffects, "create": h.effects.scheduleEffect},
			nested: call.Verbs{"delete": h.effects.removeEffect},
		},
		runtimev1.SubresourceChildren: {kind: runtimev1.KindChildList, plain: call.Verbs{"get": h.family.listChildren}, nested: call.Verbs{"get": h.family.getChild}},
		runtimev1.SubresourceSkills:   {kind: "SkillActivation", plain: call.Verbs{"create": h.tools.activateSkill}},
		runtimev1.SubresourceLease: {
			kind:  runtimev1.KindLease,
			plain: call.Verbs{"create": h.leases.acquireLease, "update": h.leases.renewLease, "delete": h.leases.releaseLease},
		},
		runtimev1.SubresourceParent:      {kind: runtimev1.KindThreadRecord, plain: call.Verbs{"get": h.family.getParent}},
		runtimev1.SubresourceNotify:      {kind: "Notification", plain: call.Verbs{"create": h.family.notifyParent}},
		runtimev1.SubresourceStatus:      {kind: "RegistryStatus", plain: call.Verbs{"get": h.family.getStatus, "update": h.family.setStatus}},
		runtimev1.SubresourceTools:       {kind: runtimev1.KindToolResult, longRunning: true, nested: call.Verbs{"create": h.tools.callTool}},
		runtimev1.SubresourceDefinitions: {kind: runtimev1.KindDefinitionNames, nested: call.Verbs{"get": h.tools.getDefinitions}},
		runtimev1.SubresourceState: {
			kind:   runtimev1.KindStateList,
			plain:  call.Verbs{"get": h.state.listState, "create": h.state.changeState},
			nested: call.Verbs{"get": h.state.getState, "update": h.state.putState, "delete": h.state.deleteState},
		},
		runtimev1.SubresourceUsage:     {kind: runtimev1.KindUsage, plain: call.Verbs{"get": h.runs.getUsage}, nested: call.Verbs{"get": h.runs.listUsage}},
		runtimev1.SubresourceMemory:    {kind: runtimev1.KindMemoryHitList, plain: call.Verbs{"get": h.searches.searchMemory}},
		runtimev1.SubresourceExport:    {kind: "Export", longRunning: true, plain: call.Verbs{"get": h.transfers.exportThread}},
		runtimev1.SubresourceImport:    {kind: runtimev1.KindImportResult, longRunning: true, plain: call.Verbs{"create": h.transfers.importThread}},
		runtimev1.SubresourceExecution: {kind: runtimev1.KindExecutionState, plain: call.Verbs{"get": h.runs.getExecution}},
		runtimev1.SubresourceEndpoints: {kind: "Endpoint", longRunning: true, foreign: true, plain: anyMethod(h.endpoints.serveEndpoint), nested: anyMethod(h.endpoints.serveEndpoint)},
	}
}

// views returns the part of the API that is not below a thread.
func (h *handlers) views() map[runtimev1.View]view {
	return map[runtimev1.View]view{
		runtimev1.ViewKVStores: {
			kind: runtimev1.KindKeyList, namespaced: true,
			below: map[string]route{"values": {
				kind:   runtimev1.KindValueRecord,
				plain:  call.Verbs{"get": h.kvStores.listKVKeys},
				nested: call.Verbs{"get": h.kvStores.getKV, "update": h.kvStores.putKV, "delete": h.kvStores.deleteKV},
			}},
		},
		runtimev1.ViewLifecycle: {
			kind: runtimev1.KindLifecycleList, namespaced: true, longRunning: true,
			collection: call.Verbs{"list": h.streams.listLifecycle, "watch": h.streams.watchLifecycle},
			across:     call.Verbs{"list": h.streams.listLifecycle, "watch": h.streams.watchLifecycle},
		},
		runtimev1.ViewUsage:    {kind: runtimev1.KindUsage, namespaced: true, collection: call.Verbs{"list": h.runs.namespaceUsage}},
		runtimev1.ViewSearches: {kind: runtimev1.KindSearchHitList, collection: call.Verbs{"list": h.searches.searchMessages}},
		runtimev1.ViewLookups:  {kind: runtimev1.KindThreadRecord, named: call.Verbs{"get": h.lookups.getLookup}},
		runtimev1.ViewRetained: {
			kind: runtimev1.KindRetainedList, namespaced: true,
			collection: call.Verbs{"list": h.retained.listRetained}, named: call.Verbs{"delete": h.retained.purgeRetained},
		},
		runtimev1.ViewHistory: {
			kind: runtimev1.KindThreadHistory, namespaced: true,
			collection: call.Verbs{"list": h.history.listHistory}, across: call.Verbs{"list": h.history.listHistory},
		},
	}
}

// anyMethod returns the same handler for every verb that authorization derives from a method.
func anyMethod(h call.Handler) call.Verbs {
	return call.Verbs{"get": h, "create": h, "update": h, "patch": h, "delete": h}
}
