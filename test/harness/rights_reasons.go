package harness

import "strings"

// elsewhere are rights that the manager has by other roles, and those that only a process outside of the cluster needs.
var elsewhere = []Right{
	{"", "authentication.k8s.io", "tokenreviews", "create"}, {"", "authorization.k8s.io", "subjectaccessreviews", "create"},
	{"", "authentication.k8s.io", "selfsubjectreviews", "create"}, {"", "authorization.k8s.io", "selfsubjectaccessreviews", "create"},
	{"kube-system", "", "configmaps", "get"}, {"kube-system", "", "configmaps", "list"}, {"kube-system", "", "configmaps", "watch"},
	{"", "", "namespaces", "create"}, {"", "apiregistration.k8s.io", "apiservices", "create"}, {"", "apiregistration.k8s.io", "apiservices", "watch"},
	{SystemNamespace, "", "services", "get"}, {SystemNamespace, "", "services", "create"}, {SystemNamespace, "", "services", "update"}, {SystemNamespace, "", "services", "patch"},
	{SystemNamespace, "discovery.k8s.io", "endpointslices", "get"}, {SystemNamespace, "discovery.k8s.io", "endpointslices", "create"},
	{SystemNamespace, "discovery.k8s.io", "endpointslices", "update"}, {SystemNamespace, "discovery.k8s.io", "endpointslices", "patch"},
}

// Why the conformance suite does not use a right.
const (
	needsNode  = "Its managers run code in processes of their own, because its cluster has no node. The tier e2e makes pods."
	asksPolicy = "No request needs it. A policy asks whether the author of a Thread has it, and the manager is one."
	ownerPlug  = "No request needs it. An admission plugin, which not all clusters have, asks for it when an owner reference blocks a deletion."
	repeated   = "It is for an Event that repeats one of the last minutes."
	oneReplica = "Its managers are alone, and stand for no election. The tier outages has replicas."
	tooEarly   = "It is for a definition that a run needs before the manager's cache has it."
)

// UnusedRights says of each right of config/rbac/role.yaml that a whole run of the conformance suite does not use why that is so. The
// suite fails when another right is not used, and when one of these is.
var UnusedRights = map[string]string{
	"create /pods": needsNode, "delete /pods": needsNode, "patch /pods": needsNode, "patch /secrets": needsNode,
	"create networking.k8s.io/networkpolicies": needsNode, "patch networking.k8s.io/networkpolicies": needsNode, "watch networking.k8s.io/networkpolicies": needsNode,
	"get coordination.k8s.io/leases in " + SystemNamespace: oneReplica, "create coordination.k8s.io/leases in " + SystemNamespace: oneReplica,
	"update coordination.k8s.io/leases in " + SystemNamespace: oneReplica, "patch coordination.k8s.io/leases in " + SystemNamespace: oneReplica,
	"get runtime.skein.dev/threads/files": asksPolicy, "get runtime.skein.dev/threads/messages": asksPolicy,
	"update skein.dev/sandboxpools/finalizers": ownerPlug, "update skein.dev/subagents/finalizers": ownerPlug, "update skein.dev/threads/finalizers": ownerPlug,
}

// maybeUnusedRights are rights that a run of the suite may use or not, with the reason for each.
var maybeUnusedRights = map[string]string{
	"patch /events in " + SystemNamespace: repeated, "get skein.dev/agents": tooEarly, "get skein.dev/effects": tooEarly,
}

// MaybeUnused reports whether a run of the suite may use a right or not. That is so for the right to list what a cache watches, too: an
// API server that can stream a list at the beginning of a watch is not asked for it.
func MaybeUnused(right string) bool {
	return maybeUnusedRights[right] != "" || strings.HasPrefix(right, "list ")
}

// refusals are texts by which the API server refuses what the manager has the right to, because something else forbids it.
var refusals = []string{
	"because it is being terminated",        // nothing is made in a namespace that is being deleted
	"exceeded quota:",                       // a ResourceQuota of a spec
	"denied the request:",                   // an admission webhook of a spec
	"ValidatingAdmissionPolicy",             // a policy of a spec, or one about what the manager makes on behalf of a user
	"namespaces \"skein-system\" not found", // a manager outside of the cluster that starts first makes its namespace
}

func refusedByDesign(message string) bool {
	for _, text := range refusals {
		if strings.Contains(message, text) {
			return true
		}
	}
	return false
}
