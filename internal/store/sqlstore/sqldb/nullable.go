package sqldb

import (
	"database/sql"
	"encoding/json"
)

// Text is a nullable column of text or JSON.
type Text struct{ sql.NullString }

// Raw returns the column as JSON; nil for NULL.
func (t Text) Raw() json.RawMessage {
	if !t.Valid {
		return nil
	}
	return json.RawMessage(t.String)
}

// NullJSON returns JSON as the value of a column; NULL when there is none.
func NullJSON(data []byte) any {
	if len(data) == 0 {
		return nil
	}
	return string(data)
}

// NullText returns a text as the value of a column; NULL when it is empty.
func NullText(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// Scanner reads the columns of a row.
type Scanner func(dst ...any) error
