package apiserver

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/status"
)

// commonParameters may come with any request to a Kubernetes API server.
var commonParameters = []string{"timeout", "pretty"}

// query reads the parameters of a request and collects the errors in them.
type query struct {
	name   string
	values url.Values
	known  []string
	causes []metav1.StatusCause
}

func (c *call) query() (*query, error) {
	v, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return nil, apierrors.NewBadRequest("the query cannot be read: escape special characters in it: " + err.Error())
	}
	q := &query{name: c.name, values: v, known: slices.Clone(commonParameters)}
	if writeVerbs[c.verb] {
		q.known = append(q.known, status.VersionParameter)
	}
	return q, nil
}

func (q *query) bad(field, format string, args ...any) {
	q.causes = append(q.causes, metav1.StatusCause{
		Type: metav1.CauseTypeFieldValueInvalid, Field: field, Message: fmt.Sprintf(format, args...),
	})
}

func (q *query) get(key string) (string, bool) {
	q.known = append(q.known, key)
	v, ok := q.values[key]
	if !ok {
		return "", false
	}
	if len(v) > 1 {
		q.bad(key, "set it once, not %d times", len(v))
	}
	return v[0], true
}

func (q *query) text(key string) string {
	v, _ := q.get(key)
	return v
}

func (q *query) number(key string, def, lowest, highest int) int {
	v, ok := q.get(key)
	if !ok {
		return def
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < lowest || n > highest {
		q.bad(key, "%q is not a whole number from %d to %d", v, lowest, highest)
		return def
	}
	return n
}

func (q *query) flag(key string, def bool) bool {
	v, ok := q.get(key)
	if !ok {
		return def
	}
	b, err := strconv.ParseBool(v)
	if err != nil && v != "" {
		q.bad(key, "%q is neither true nor false", v)
		return def
	}
	return b || v == ""
}

func (q *query) oneOf(key string, allowed ...string) string {
	v, ok := q.get(key)
	if !ok || slices.Contains(allowed, v) {
		return v
	}
	q.bad(key, "%q is not one of %s", v, strings.Join(allowed, ", "))
	return ""
}

// maxOffset keeps the sum with a limit within an int.
const maxOffset = 1 << 30

// page reads limit and offset.
func (q *query) page() (limit, offset int) {
	return q.number("limit", runtimev1.DefaultPageSize, 1, runtimev1.MaxPageSize), q.number("offset", 0, 0, maxOffset)
}

// check returns the error that answers the request when a parameter was invalid or unknown.
func (q *query) check() error {
	var unknown []string
	for key := range q.values {
		if !slices.Contains(q.known, key) {
			unknown = append(unknown, key)
		}
	}
	slices.Sort(unknown)
	for _, key := range unknown {
		q.bad(key, "unknown parameter; known ones are %s", strings.Join(q.known[len(commonParameters):], ", "))
	}
	if len(q.causes) == 0 {
		return nil
	}
	texts := make([]string, len(q.causes))
	for i, c := range q.causes {
		texts[i] = c.Field + ": " + c.Message
	}
	e := status.Invalid(q.name, "", "", "")
	e.ErrStatus.Message = "bad query parameter: " + strings.Join(texts, "; ")
	e.ErrStatus.Details.Causes = q.causes
	return e
}

// cut returns one page of a list that is in memory, and whether more follows.
func cut[T any](all []T, limit, offset int) (page []T, more bool) {
	if offset >= len(all) {
		return []T{}, false
	}
	all = all[offset:]
	if len(all) > limit {
		return all[:limit], true
	}
	return all, false
}
