package apiserver

import (
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// routes returns the whole API below threads. The verb watch is a GET below /watch/, which API servers do not time
// out.
func (h *handlers) routes() map[runtimev1.Subresource]route {
	return map[runtimev1.Subresource]route{
		"": {kind: runtimev1.KindThreadRecord, plain: verbs{"get": h.records.getThread, "patch": h.records.patchThread}},
		runtimev1.SubresourceMessages: {
			kind:   runtimev1.KindMessageList,
			plain:  verbs{"get": h.messages.listMessages, "create": h.messages.injectMessage},
			nested: verbs{"get": h.messages.getMessage, "patch": h.messages.updateMessage, "delete": h.messages.deleteMessage},
		},
		runtimev1.SubresourceQueue: {kind: runtimev1.KindMessageList, plain: verbs{"get": h.messages.listQueue, "create": h.messages.queueMessage}},
		runtimev1.SubresourceFiles: {
			kind: runtimev1.KindFileList, longRunning: true,
			plain:  verbs{"get": h.files.listFiles},
			nested: verbs{"get": h.files.readFile, "update": h.files.writeFile, "delete": h.files.deleteFile},
		},
		runtimev1.SubresourceEvents:    {kind: "Event", longRunning: true, plain: verbs{"get": h.streams.streamEvents, "watch": h.streams.streamEvents, "create": h.streams.emitEvent}},
		runtimev1.SubresourceLogs:      {kind: "LogLine", longRunning: true, plain: verbs{"get": h.streams.streamLogs, "watch": h.streams.streamLogs}},
		runtimev1.SubresourceRuns:      {kind: runtimev1.KindRunList, plain: verbs{"get": h.runs.listRuns}, nested: verbs{"get": h.runs.getRun, "create": h.runs.cancelRun}},
		runtimev1.SubresourceApprovals: {kind: runtimev1.KindApprovalList, plain: verbs{"get": h.approvals.listApprovals}, nested: verbs{"create": h.approvals.decideApproval}},
		runtimev1.SubresourceStop:      {kind: runtimev1.KindThreadRecord, plain: verbs{"create": h.life.stopThread}},
		runtimev1.SubresourceDestroy:   {kind: runtimev1.KindThreadRecord, plain: verbs{"create": h.life.destroyThread}},
		runtimev1.SubresourceContinue:  {kind: runtimev1.KindThreadRecord, plain: verbs{"create": h.life.continueThread}},
		runtimev1.SubresourceTerminate: {kind: runtimev1.KindThreadRecord, plain: verbs{"create": h.life.terminateThread}},
		runtimev1.SubresourceTruncate:  {kind: "Truncated", plain: verbs{"create": h.messages.truncateThread}},
		runtimev1.SubresourceRelationships: {
			kind: runtimev1.KindRelationshipList, plain: verbs{"get": h.relationships.listRelationships, "create": h.relationships.addRelationship},
		},
		runtimev1.SubresourceKV: {
			kind:   "Value",
			plain:  verbs{"get": h.values.listKeys},
			nested: verbs{"get": h.values.getValue, "update": h.values.putValue, "delete": h.values.deleteValue},
		},
		runtimev1.SubresourceEnv: {
			kind: runtimev1.KindEnvVarList, secret: true,
			plain:  verbs{"get": h.env.listEnv},
			nested: verbs{"get": h.env.getEnv, "update": h.env.putEnv, "delete": h.env.deleteEnv},
		},
		runtimev1.SubresourceCode: {kind: runtimev1.KindCodeResult, longRunning: true, plain: verbs{"create": h.code.runCode, "get": h.code.attendCode, "watch": h.code.attendCode}},
		runtimev1.SubresourceEffects: {
			kind:   runtimev1.KindEffectList,
			plain:  verbs{"get": h.effects.listEffects, "create": h.effects.scheduleEffect},
			nested: verbs{"delete": h.effects.removeEffect},
		},
		runtimev1.SubresourceChildren: {kind: runtimev1.KindChildList, plain: verbs{"get": h.family.listChildren}, nested: verbs{"get": h.family.getChild}},
		runtimev1.SubresourceSkills:   {kind: "SkillActivation", plain: verbs{"create": h.tools.activateSkill}},
		runtimev1.SubresourceLease: {
			kind:  runtimev1.KindLease,
			plain: verbs{"create": h.leases.acquireLease, "update": h.leases.renewLease, "delete": h.leases.releaseLease},
		},
		runtimev1.SubresourceParent:      {kind: runtimev1.KindThreadRecord, plain: verbs{"get": h.family.getParent}},
		runtimev1.SubresourceNotify:      {kind: "Notification", plain: verbs{"create": h.family.notifyParent}},
		runtimev1.SubresourceStatus:      {kind: "RegistryStatus", plain: verbs{"get": h.family.getStatus, "update": h.family.setStatus}},
		runtimev1.SubresourceTools:       {kind: runtimev1.KindToolResult, longRunning: true, nested: verbs{"create": h.tools.callTool}},
		runtimev1.SubresourceDefinitions: {kind: runtimev1.KindDefinitionNames, nested: verbs{"get": h.tools.getDefinitions}},
		runtimev1.SubresourceState: {
			kind:   runtimev1.KindStateList,
			plain:  verbs{"get": h.state.listState, "create": h.state.changeState},
			nested: verbs{"get": h.state.getState, "update": h.state.putState, "delete": h.state.deleteState},
		},
		runtimev1.SubresourceUsage:     {kind: runtimev1.KindUsage, plain: verbs{"get": h.runs.getUsage}, nested: verbs{"get": h.runs.listUsage}},
		runtimev1.SubresourceMemory:    {kind: runtimev1.KindMemoryHitList, plain: verbs{"get": h.searches.searchMemory}},
		runtimev1.SubresourceExport:    {kind: "Export", longRunning: true, plain: verbs{"get": h.transfers.exportThread}},
		runtimev1.SubresourceImport:    {kind: runtimev1.KindImportResult, longRunning: true, plain: verbs{"create": h.transfers.importThread}},
		runtimev1.SubresourceExecution: {kind: runtimev1.KindExecutionState, plain: verbs{"get": h.runs.getExecution}},
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
				plain:  verbs{"get": h.kvStores.listKVKeys},
				nested: verbs{"get": h.kvStores.getKV, "update": h.kvStores.putKV, "delete": h.kvStores.deleteKV},
			}},
		},
		runtimev1.ViewLifecycle: {
			kind: runtimev1.KindLifecycleList, namespaced: true, longRunning: true,
			collection: verbs{"list": h.streams.listLifecycle, "watch": h.streams.watchLifecycle},
			across:     verbs{"list": h.streams.listLifecycle, "watch": h.streams.watchLifecycle},
		},
		runtimev1.ViewUsage:    {kind: runtimev1.KindUsage, namespaced: true, collection: verbs{"list": h.runs.namespaceUsage}},
		runtimev1.ViewSearches: {kind: runtimev1.KindSearchHitList, collection: verbs{"list": h.searches.searchMessages}},
		runtimev1.ViewLookups:  {kind: runtimev1.KindThreadRecord, named: verbs{"get": h.lookups.getLookup}},
		runtimev1.ViewRetained: {
			kind: runtimev1.KindRetainedList, namespaced: true,
			collection: verbs{"list": h.retained.listRetained}, named: verbs{"delete": h.retained.purgeRetained},
		},
		runtimev1.ViewHistory: {
			kind: runtimev1.KindThreadHistory, namespaced: true,
			collection: verbs{"list": h.history.listHistory}, across: verbs{"list": h.history.listHistory},
		},
	}
}

// anyMethod returns the same handler for every verb that authorization derives from a method.
func anyMethod(h handler) verbs {
	return verbs{"get": h, "create": h, "update": h, "patch": h, "delete": h}
}
