package sqldb

import (
	"database/sql"
	"encoding/json"
)

// Text is a nullable column of text or JSON.
type Text struct{ sql.NullString }

func (t Text) Raw() json.RawMessage {
	if !t.Valid {
		return nil
	}
	return json.RawMessage(t.String)
}

func NullJSON(data []byte) any {
	if len(data) == 0 {
		return nil
	}
	return string(data)
}

func NullText(s string) any {
	if s == "" {
		return nil
	}
	return s
}

type Scanner func(dst ...any) error
