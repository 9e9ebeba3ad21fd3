package values

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"time"
)

// Plain encodes a value as plain JSON, for readers that know only JSON, such as a model or a custom resource. It writes
// what JSON.stringify would write. For values that JSON lacks it writes the nearest. undefined properties are omitted,
// and NaN and infinities are null. A bigint is a number, and a Date is an ISO 8601 string. A Map is an object (when its
// keys are strings) or an array of pairs, a Set is an array, and bytes are a base64 string.
func Plain(v any) (json.RawMessage, error) {
	plain, err := plain(v, 0)
	if err != nil {
		return nil, err
	}
	return json.Marshal(plain)
}

// Into stores a value in dst as json.Unmarshal would store its JSON.
func Into(v, dst any) error {
	raw, err := Plain(v)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, dst)
}

func plain(v any, depth int) (any, error) {
	if depth > MaxDepth {
		return nil, fmt.Errorf("value nests deeper than %d levels", MaxDepth)
	}
	switch v := v.(type) {
	case Undefined:
		return nil, nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, nil
		}
		return v, nil
	case *big.Int:
		return v, nil
	case time.Time:
		return v.UTC().Format("2006-01-02T15:04:05.000Z07:00"), nil
	case []byte:
		return base64.StdEncoding.EncodeToString(v), nil
	case []any:
		return plainItems(v, depth)
	case *Set:
		return plainItems(v.Members, depth)
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, item := range v {
			if (item == Undefined{}) {
				continue
			}
			p, err := plain(item, depth+1)
			if err != nil {
				return nil, err
			}
			out[name] = p
		}
		return out, nil
	case *Map:
		return plainMap(v, depth)
	}
	return v, nil
}

func plainItems(items []any, depth int) (any, error) {
	out := make([]any, len(items))
	for i, item := range items {
		p, err := plain(item, depth+1)
		if err != nil {
			return nil, err
		}
		out[i] = p
	}
	return out, nil
}

func plainMap(m *Map, depth int) (any, error) {
	object := make(map[string]any, len(m.Entries))
	pairs := make([]any, 0, len(m.Entries))
	for _, entry := range m.Entries {
		k, err := plain(entry[0], depth+1)
		if err != nil {
			return nil, err
		}
		v, err := plain(entry[1], depth+1)
		if err != nil {
			return nil, err
		}
		if name, ok := entry[0].(string); ok {
			object[name] = v
		}
		pairs = append(pairs, []any{k, v})
	}
	if len(object) == len(pairs) {
		return object, nil
	}
	return pairs, nil
}
