package redact

import (
	"bytes"
	"encoding/json"
	"strings"
)

// JSON returns a JSON text without the secrets of a namespace. Valid JSON stays valid.
func (r *Registry) JSON(namespace string, data []byte) []byte {
	if !r.HasSecrets(namespace) {
		return data
	}
	text := string(data)
	clean := r.Text(namespace, text)
	odd := strings.Contains(clean, `\u`) || strings.Contains(clean, `\/`) // escaped in a way that differs from formsOf
	if clean == text && !odd {
		return data
	}
	if !odd && json.Valid([]byte(clean)) {
		return []byte(clean)
	}
	// A number contained the value, or an escape hides it: check the parts.
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return []byte(clean) // not JSON
	}
	v, changed := r.tree(namespace, v)
	if !changed {
		return data
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return []byte(`"[redacted]"`)
	}
	if bytes.HasSuffix(data, []byte("\n")) {
		return out.Bytes()
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// tree redacts a value as encoding/json decodes it. It does not change the given value.
func (r *Registry) tree(namespace string, v any) (clean any, changed bool) {
	switch v := v.(type) {
	case string:
		s := r.Text(namespace, v)
		return s, s != v
	case json.Number:
		s := r.Text(namespace, v.String())
		if s != v.String() {
			return s, true
		}
		return v, false
	case []any:
		out := make([]any, len(v))
		for i := range v {
			c, ch := r.tree(namespace, v[i])
			out[i], changed = c, changed || ch
		}
		if changed {
			return out, true
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			c, ch := r.tree(namespace, e)
			key := r.Text(namespace, k)
			out[key], changed = c, changed || ch || key != k
		}
		if changed {
			return out, true
		}
	}
	return v, false
}
