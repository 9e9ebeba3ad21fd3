package harness

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Write is a change that the API server's audit log holds.
type Write struct {
	User        string
	Verb        string
	Resource    string // with the subresource: "threads/status"
	Namespace   string
	Name        string
	Code        int
	Time        time.Time
	Subresource string
}

// AuditLog is where the cluster writes its audit log when it was started with one.
func (c *Cluster) AuditLog() string {
	return filepath.Join(filepath.Dir(c.Kubeconfig), "logs", "audit.log")
}

// Writes gives the successful changes that users with this prefix made in a namespace since a time.
func (c *Cluster) Writes(userPrefix, namespace string, since time.Time) ([]Write, error) {
	return c.changes(userPrefix, namespace, since, func(code int) bool { return code < 400 })
}

// RefusedWrites gives the changes that were refused, for example because their object was gone.
func (c *Cluster) RefusedWrites(userPrefix, namespace string, since time.Time) ([]Write, error) {
	return c.changes(userPrefix, namespace, since, func(code int) bool { return code >= 400 })
}

func (c *Cluster) changes(userPrefix, namespace string, since time.Time, answered func(code int) bool) ([]Write, error) {
	f, err := os.Open(c.AuditLog())
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, errors.New("the cluster has no audit log: start it with --audit-log")
		}
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var out []Write
	s := bufio.NewScanner(f)
	s.Buffer(nil, 4<<20)
	for s.Scan() {
		var e struct {
			Stage, Verb              string
			RequestReceivedTimestamp time.Time
			User                     struct{ Username string }
			ObjectRef                struct{ Resource, Subresource, Namespace, Name, APIGroup string }
			ResponseStatus           struct{ Code int }
		}
		if json.Unmarshal(s.Bytes(), &e) != nil || e.Stage != "ResponseComplete" || e.RequestReceivedTimestamp.Before(since) {
			continue
		}
		switch e.Verb {
		case "create", "update", "patch", "delete", "deletecollection":
		default:
			continue
		}
		if !strings.HasPrefix(e.User.Username, userPrefix) || e.ObjectRef.Namespace != namespace || !answered(e.ResponseStatus.Code) ||
			strings.HasSuffix(e.ObjectRef.Resource, "reviews") || e.ObjectRef.APIGroup == "runtime.skein.dev" {
			continue
		}
		w := Write{User: e.User.Username, Verb: e.Verb, Resource: e.ObjectRef.Resource, Subresource: e.ObjectRef.Subresource, Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name, Code: e.ResponseStatus.Code, Time: e.RequestReceivedTimestamp}
		if w.Subresource != "" {
			w.Resource += "/" + w.Subresource
		}
		out = append(out, w)
	}
	return out, s.Err()
}
