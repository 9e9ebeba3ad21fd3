package apiserver

import (
	"encoding/json"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// getValue answers GET kv/{key} with the value itself, or null when there is none (KVS-01).
func (s *Server) getValue(c *call) error {
	v, err := c.thread.Value(c.r.Context(), c.rest())
	if err != nil {
		return err
	}
	if v == nil {
		v = json.RawMessage("null")
	}
	return c.writeJSON(http.StatusOK, v)
}

// putValue answers PUT kv/{key}: the body is the value, and null removes the key.
func (s *Server) putValue(c *call) error {
	body, err := c.readBody()
	if err != nil {
		return err
	}
	if len(body) == 0 {
		return apierrors.NewBadRequest("the body is empty: send a JSON value, null to remove the key")
	}
	if err := c.thread.SetValue(c.r.Context(), c.rest(), body); err != nil {
		return err
	}
	return c.writeSuccess()
}

// deleteValue answers DELETE kv/{key}; a missing key is no error.
func (s *Server) deleteValue(c *call) error {
	if err := c.thread.SetValue(c.r.Context(), c.rest(), nil); err != nil {
		return err
	}
	return c.writeSuccess()
}
