package call

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
	"github.com/skein-dev/skein/internal/thread"
)

// commonParameters may come with any request to a Kubernetes API server.
var commonParameters = []string{"timeout", "pretty"}

// Query reads the parameters of a request and collects the errors in them.
type Query struct {
	name   string
	values url.Values
	known  []string
	causes []metav1.StatusCause
	inBody bool // what the request says is in its body
}

// Query returns the parameters of the request. The caller reads them and then calls Check.
func (c *Call) Query() (*Query, error) {
	v, err := url.ParseQuery(c.Request.URL.RawQuery)
	if err != nil {
		return nil, apierrors.NewBadRequest("the query cannot be read: escape special characters in it: " + err.Error())
	}
	q := &Query{name: c.Name, values: v, known: slices.Clone(commonParameters)}
	if c.Writes() {
		q.known = append(q.known, status.VersionParameter)
	}
	if c.KeyInQuery {
		q.known = append(q.known, runtimev1.KeyParameter)
	}
	return q, nil
}

// Has reports whether the request sets a parameter.
func (q *Query) Has(key string) bool { return q.values.Has(key) }

// Know makes Check accept parameters that the handler reads with Has only.
func (q *Query) Know(keys ...string) { q.known = append(q.known, keys...) }

// Bad records that a parameter is invalid.
func (q *Query) Bad(field, format string, args ...any) {
	q.causes = append(q.causes, metav1.StatusCause{
		Type: metav1.CauseTypeFieldValueInvalid, Field: field, Message: fmt.Sprintf(format, args...),
	})
}

// Get returns a parameter, and whether the request sets it. Check refuses a parameter that the handler has not asked for, with Get or
// another method.
func (q *Query) Get(key string) (string, bool) {
	q.known = append(q.known, key)
	v, ok := q.values[key]
	if !ok {
		return "", false
	}
	if len(v) > 1 {
		q.Bad(key, "set it once, not %d times", len(v))
	}
	return v[0], true
}

// Text returns a parameter, or "" without it.
func (q *Query) Text(key string) string {
	v, _ := q.Get(key)
	return v
}

// Number returns a parameter that is a whole number within bounds, or def without it.
func (q *Query) Number(key string, def, lowest, highest int) int {
	v, ok := q.Get(key)
	if !ok {
		return def
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < lowest || n > highest {
		q.Bad(key, "%q is not a whole number from %d to %d", v, lowest, highest)
		return def
	}
	return n
}

// Flag returns a parameter that is true or false, or def without it. A parameter without a value is true.
func (q *Query) Flag(key string, def bool) bool {
	v, ok := q.Get(key)
	if !ok {
		return def
	}
	b, err := strconv.ParseBool(v)
	if err != nil && v != "" {
		q.Bad(key, "%q is neither true nor false", v)
		return def
	}
	return b || v == ""
}

// OneOf returns a parameter that has one of some values, or "" without it.
func (q *Query) OneOf(key string, allowed ...string) string {
	v, ok := q.Get(key)
	if !ok || slices.Contains(allowed, v) {
		return v
	}
	q.Bad(key, "%q is not one of %s", v, strings.Join(allowed, ", "))
	return ""
}

// maxOffset keeps the sum with a limit within an int.
const maxOffset = 1 << 30

// Page reads limit and offset.
func (q *Query) Page() (limit, offset int) {
	return q.Number("limit", runtimev1.DefaultPageSize, 1, runtimev1.MaxPageSize), q.Number("offset", 0, 0, maxOffset)
}

// PageOfThreads returns how many threads a page may have, and the id of the thread that it begins after; "" for the first page.
func (q *Query) PageOfThreads() (limit int, after string) {
	limit = q.Number("limit", runtimev1.DefaultPageSize, 1, runtimev1.MaxPageSize)
	if after = q.Text("after"); after == "" {
		return limit, ""
	}
	id, ok := thread.ParseID(after)
	if !ok {
		q.Bad("after", "%q is not the id of a thread: set it to the id of the last thread of the previous page", after)
	}
	return limit, id
}

// Check returns the error that answers the request when a parameter was invalid or unknown.
func (q *Query) Check() error {
	var unknown []string
	for key := range q.values {
		if !slices.Contains(q.known, key) {
			unknown = append(unknown, key)
		}
	}
	slices.Sort(unknown)
	for _, key := range unknown {
		q.Bad(key, "%s", q.unknownAdvice())
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

// unknownAdvice says what to do about a parameter that the request does not have.
func (q *Query) unknownAdvice() string {
	text := "unknown parameter"
	if known := q.known[len(commonParameters):]; len(known) > 0 {
		text += "; known ones are " + strings.Join(known, ", ")
	}
	if q.inBody {
		text += "; everything else belongs in the body, as a field"
	}
	return text
}

// Cut returns one page of a list that is in memory, and whether more follows.
func Cut[T any](all []T, limit, offset int) (page []T, more bool) {
	if offset >= len(all) {
		return []T{}, false
	}
	all = all[offset:]
	if len(all) > limit {
		return all[:limit], true
	}
	return all, false
}
