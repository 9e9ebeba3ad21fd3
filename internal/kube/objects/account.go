package objects

import (
	"fmt"
	"strings"
)

// ClusterRoles with the manager's rights to Secrets. They are bound in all namespaces, or only in some (config/bound-secrets).
const (
	RoleSecretReader        = "skein-secret-reader"
	RoleSandboxCertificates = "skein-sandbox-certificates"
)

// Account is the manager's user name at the API server.
type Account string

// Bind says how to give an account a ClusterRole in a namespace.
func (a Account) Bind(role, namespace string) string {
	subject := fmt.Sprintf("--user=%q", string(a))
	if serviceAccount, ok := strings.CutPrefix(string(a), "system:serviceaccount:"); ok {
		subject = "--serviceaccount=" + serviceAccount
	}
	return fmt.Sprintf("bind the ClusterRole %s to the manager there: kubectl create rolebinding %s --namespace=%s --clusterrole=%s %s",
		role, role, namespace, role, subject)
}
