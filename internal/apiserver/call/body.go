package call

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/internal/apiserver/status"
	"github.com/skein-dev/skein/internal/jsontype"
	"github.com/skein-dev/skein/internal/membudget"
)

// ReadBody returns the body of a JSON request. It fails if the body is too large, comes too slowly, or has another media type.
func (c *Call) ReadBody() ([]byte, error) {
	if ct := c.Request.Header.Get("Content-Type"); ct != "" {
		media, _, err := mime.ParseMediaType(ct)
		merge := c.Request.Method == http.MethodPatch && media == "application/merge-patch+json"
		if err != nil || media != "application/json" && !merge {
			return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
				Message: "the body must be JSON: send it with Content-Type: application/json",
			}}
		}
	}
	in := c.PatientBody(bodyPatience)
	body, err := membudget.ReadAll(c.Context(), membudget.From(c.Context()), http.MaxBytesReader(c.Response, io.NopCloser(in), runtimev1.MaxBodyBytes))
	if err != nil {
		if errors.Is(err, errSlow) || errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, apierrors.NewBadRequest("the body came too slowly: send it again")
		}
		return nil, err
	}
	return body, c.DrawMemoryOfJSON(body)
}

// bodyPatience bounds each read of a JSON body.
const bodyPatience = 30 * time.Second

// DrawMemoryOfJSON draws, from the memory account of the call, what a JSON text takes once it is decoded. It stays drawn for as long as
// the call lasts. Small values can need seventy times
// their size.
func (c *Call) DrawMemoryOfJSON(body []byte) error {
	return membudget.From(c.Context()).Draw(c.Context(), membudget.JSONCost(body))
}

// Decode reads a JSON body strictly: unknown and repeated fields are errors that name them, and so are parameters in the query, which
// would otherwise be ignored. When optional is true, a request without a body leaves into unchanged.
func (c *Call) Decode(into any, optional bool) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	q.inBody = true
	if err := q.Check(); err != nil {
		return err
	}
	body, err := c.ReadBody()
	if err != nil {
		return err
	}
	if len(body) == 0 && optional {
		return nil
	}
	return DecodeStrict(c.Name, body, into)
}

// DecodeStrict is Decode for JSON that came in another way. name is the thread as the caller wrote it.
func DecodeStrict(name string, body []byte, into any) error {
	if len(body) == 0 {
		return apierrors.NewBadRequest("the body is empty: send a JSON object")
	}
	strict, err := kjson.UnmarshalStrict(body, into)
	if err != nil {
		var e *json.UnmarshalTypeError
		if errors.As(err, &e) {
			field, text := jsontype.Wrong(err)
			if field != "" {
				return status.Invalid(name, metav1.CauseTypeTypeInvalid, field, text)
			}
			return apierrors.NewBadRequest("the body has the wrong type: " + text)
		}
		return apierrors.NewBadRequest("the body is not valid JSON for this request: " + err.Error())
	}
	if len(strict) > 0 {
		var texts []string
		var causes []metav1.StatusCause
		for _, s := range strict {
			texts = append(texts, s.Error())
			cause := metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Message: s.Error()}
			var f kjson.FieldError
			if errors.As(s, &f) {
				cause.Field = f.FieldPath()
			}
			causes = append(causes, cause)
		}
		e := status.Invalid(name, "", "", "")
		e.ErrStatus.Message = "the body has unknown or repeated fields: " + strings.Join(texts, "; ")
		e.ErrStatus.Details.Causes = causes
		return e
	}
	return nil
}

// IdempotencyKey returns the idempotency key of a write: the body's, or else the header's.
func (c *Call) IdempotencyKey(inBody string) string {
	if inBody != "" {
		return inBody
	}
	return c.Request.Header.Get(runtimev1.HeaderIdempotencyKey)
}

// Claim records what is sent under the idempotency key of a body, and refuses another body under a used key. kind separates requests whose
// keys must not meet. body is the request without its key; how its JSON is written makes no difference. Without a key it does nothing.
func (c *Call) Claim(kind, key string, body any) error {
	if key == "" {
		return nil
	}
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	var plain any // a JSON field of the body keeps the order and the spaces of the caller
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&plain); err != nil {
		return err
	}
	if data, err = json.Marshal(plain); err != nil {
		return err
	}
	return c.Thread.Claim(c.Context(), kind+":"+key, Digest(data))
}

// Digest returns the digest of what is sent under an idempotency key.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Object returns a field that must be a JSON object, or {} when it is absent.
func Object(name, field string, raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return json.RawMessage("{}"), nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil || object == nil {
		return nil, status.Invalid(name, metav1.CauseTypeTypeInvalid, field, "it must be a JSON object; or leave it out")
	}
	return raw, nil
}
