package apiserver

import runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"

// verbs maps the verb that was authorized to its handler.
type verbs = map[string]handler

// routes returns the whole API below threads. The verb watch is a GET below /watch/, which API servers do not time
// out.
func (s *Server) routes() map[runtimev1.Subresource]route {
	return map[runtimev1.Subresource]route{
		"": {kind: runtimev1.KindThreadRecord, plain: verbs{"get": s.getThread, "patch": s.patchThread}},
		runtimev1.SubresourceMessages: {
			kind:   runtimev1.KindMessageList,
			plain:  verbs{"get": s.listMessages, "create": s.injectMessage},
			nested: verbs{"get": s.getMessage, "patch": s.updateMessage, "delete": s.deleteMessage},
		},
		runtimev1.SubresourceQueue: {kind: runtimev1.KindMessageList, plain: verbs{"get": s.listQueue, "create": s.queueMessage}},
		runtimev1.SubresourceFiles: {
			kind: runtimev1.KindFileList, longRunning: true,
			plain:  verbs{"get": s.listFiles},
			nested: verbs{"get": s.readFile, "update": s.writeFile, "delete": s.deleteFile},
		},
		runtimev1.SubresourceEvents:    {kind: "Event", longRunning: true, plain: verbs{"get": s.streamEvents, "watch": s.streamEvents, "create": s.emitEvent}},
		runtimev1.SubresourceLogs:      {kind: "LogLine", longRunning: true, plain: verbs{"get": s.streamLogs, "watch": s.streamLogs}},
		runtimev1.SubresourceRuns:      {kind: runtimev1.KindRunList, plain: verbs{"get": s.listRuns}, nested: verbs{"get": s.getRun, "create": s.cancelRun}},
		runtimev1.SubresourceApprovals: {kind: runtimev1.KindApprovalList, plain: verbs{"get": s.listApprovals}, nested: verbs{"create": s.decideApproval}},
		runtimev1.SubresourceStop:      {kind: runtimev1.KindThreadRecord, plain: verbs{"create": s.stopThread}},
		runtimev1.SubresourceDestroy:   {kind: runtimev1.KindThreadRecord, plain: verbs{"create": s.destroyThread}},
		runtimev1.SubresourceContinue:  {kind: runtimev1.KindThreadRecord, plain: verbs{"create": s.continueThread}},
		runtimev1.SubresourceTerminate: {kind: runtimev1.KindThreadRecord, plain: verbs{"create": s.terminateThread}},
		runtimev1.SubresourceTruncate:  {kind: "Truncated", plain: verbs{"create": s.truncateThread}},
		runtimev1.SubresourceRelationships: {
			kind: runtimev1.KindRelationshipList, plain: verbs{"get": s.listRelationships, "create": s.addRelationship},
		},
		runtimev1.SubresourceKV: {
			kind:   "Value",
			plain:  verbs{"get": s.listKeys},
			nested: verbs{"get": s.getValue, "update": s.putValue, "delete": s.deleteValue},
		},
		runtimev1.SubresourceEnv: {
			kind: runtimev1.KindEnvVarList, secret: true,
			plain:  verbs{"get": s.listEnv},
			nested: verbs{"get": s.getEnv, "update": s.putEnv, "delete": s.deleteEnv},
		},
		runtimev1.SubresourceCode: {kind: runtimev1.KindCodeResult, longRunning: true, plain: verbs{"create": s.runCode, "get": s.attendCode, "watch": s.attendCode}},
		runtimev1.SubresourceEffects: {
			kind:   runtimev1.KindEffectList,
			plain:  verbs{"get": s.listEffects, "create": s.scheduleEffect},
			nested: verbs{"delete": s.removeEffect},
		},
		runtimev1.SubresourceChildren: {kind: runtimev1.KindChildList, plain: verbs{"get": s.listChildren}, nested: verbs{"get": s.getChild}},
		runtimev1.SubresourceSkills:   {kind: "SkillActivation", plain: verbs{"create": s.activateSkill}},
		runtimev1.SubresourceLease: {
			kind:  runtimev1.KindLease,
			plain: verbs{"create": s.acquireLease, "update": s.renewLease, "delete": s.releaseLease},
		},
		runtimev1.SubresourceParent:      {kind: runtimev1.KindThreadRecord, plain: verbs{"get": s.getParent}},
		runtimev1.SubresourceNotify:      {kind: "Notification", plain: verbs{"create": s.notifyParent}},
		runtimev1.SubresourceStatus:      {kind: "RegistryStatus", plain: verbs{"get": s.getStatus, "update": s.setStatus}},
		runtimev1.SubresourceTools:       {kind: runtimev1.KindToolResult, longRunning: true, nested: verbs{"create": s.callTool}},
		runtimev1.SubresourceDefinitions: {kind: runtimev1.KindDefinitionNames, nested: verbs{"get": s.getDefinitions}},
		runtimev1.SubresourceState: {
			kind:   runtimev1.KindStateList,
			plain:  verbs{"get": s.listState, "create": s.changeState},
			nested: verbs{"get": s.getState, "update": s.putState, "delete": s.deleteState},
		},
		runtimev1.SubresourceUsage:     {kind: runtimev1.KindUsage, plain: verbs{"get": s.getUsage}, nested: verbs{"get": s.listUsage}},
		runtimev1.SubresourceMemory:    {kind: runtimev1.KindMemoryHitList, plain: verbs{"get": s.searchMemory}},
		runtimev1.SubresourceExport:    {kind: "Export", longRunning: true, plain: verbs{"get": s.exportThread}},
		runtimev1.SubresourceImport:    {kind: runtimev1.KindImportResult, longRunning: true, plain: verbs{"create": s.importThread}},
		runtimev1.SubresourceExecution: {kind: runtimev1.KindExecutionState, plain: verbs{"get": s.getExecution}},
		runtimev1.SubresourceEndpoints: {kind: "Endpoint", longRunning: true, foreign: true, plain: anyMethod(s.serveEndpoint), nested: anyMethod(s.serveEndpoint)},
	}
}

// anyMethod returns the same handler for every verb that authorization derives from a method.
func anyMethod(h handler) verbs {
	return verbs{"get": h, "create": h, "update": h, "patch": h, "delete": h}
}
