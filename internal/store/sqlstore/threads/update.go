package threads

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/sqldb"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// FieldsText returns the column of a thread's fields; NULL when it has none.
func FieldsText(f *store.Fields) (any, error) {
	data, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("the fields of a thread cannot be written as JSON: %w", err)
	}
	if string(data) == "{}" {
		return nil, nil
	}
	return string(data), nil
}

func fieldsFrom(column sqldb.Text, f *store.Fields) error {
	if !column.Valid {
		return nil
	}
	if err := json.Unmarshal([]byte(column.String), f); err != nil {
		return fmt.Errorf("its fields are damaged: %w", err)
	}
	return nil
}

// threadFields is what UpdateThread may change.
type threadFields struct {
	title, status string
	archivedAt    int64
	fields        store.Fields
}

// Update changes the record of a thread.
func Update(t *txn.Tx, h *txn.Head, op *store.UpdateThread) error {
	if op.ExpectVersion != nil {
		if err := t.ExpectVersion(h, *op.ExpectVersion); err != nil {
			return err
		}
	}
	var now threadFields
	var column sqldb.Text
	if err := t.Row(t.Ctx, queries.ThreadFields, []any{h.Key}, &now.title, &now.status, &now.archivedAt, &column); err != nil {
		return err
	}
	if err := fieldsFrom(column, &now.fields); err != nil {
		return fmt.Errorf("thread %s: %w", h.ID, err)
	}
	next := now
	next.fields = store.Fields{} // decoded again, because an edit may change what a pointer or a slice refers to
	if err := fieldsFrom(column, &next.fields); err != nil {
		return err
	}
	set := func(field *string, to *string) {
		if to != nil {
			*field = *to
		}
	}
	if !op.OnlyUntitled || now.title == "" {
		set(&next.title, op.Title)
	}
	set(&next.status, op.RegistryStatus)
	if op.Archived != nil && *op.Archived != (now.archivedAt != 0) {
		next.archivedAt = 0
		if *op.Archived {
			next.archivedAt = t.Now
		}
	}
	if op.EditFields != nil {
		if err := op.EditFields(&next.fields); err != nil {
			return err
		}
	}
	if reflect.DeepEqual(now, next) {
		return nil
	}
	return writeThread(t, h, now, next)
}

func writeThread(t *txn.Tx, h *txn.Head, before, after threadFields) error {
	fields, err := FieldsText(&after.fields)
	if err != nil {
		return err
	}
	if err := t.Write(t.Ctx, queries.UpdateThread, after.title, after.status, after.archivedAt, fields, h.Key); err != nil {
		return err
	}
	if before.archivedAt != after.archivedAt {
		if err := t.Write(t.Ctx, queries.SetArchived, flag(after.archivedAt != 0), h.Key); err != nil {
			return err
		}
	}
	change := store.ChangedThread
	if before.status = after.status; reflect.DeepEqual(before, after) { // its final status comes with the end of a run
		change = store.ChangedAtWork
	}
	h.Touch(change)
	return logUpdated(t, h, before, after)
}

// flag returns a boolean in the form of the columns, 0 or 1.
func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// logUpdated logs the new values of the changed fields.
func logUpdated(t *txn.Tx, h *txn.Head, before, after threadFields) error {
	changed := map[string]any{}
	if before.title != after.title {
		changed["title"] = after.title
	}
	if was, is := before.archivedAt != 0, after.archivedAt != 0; was != is {
		changed["archived"] = is
	}
	was, is := reflect.ValueOf(before.fields), reflect.ValueOf(after.fields)
	for i := range is.NumField() {
		if !reflect.DeepEqual(was.Field(i).Interface(), is.Field(i).Interface()) {
			changed[fieldName(is.Type().Field(i))] = is.Field(i).Interface()
		}
	}
	if len(changed) == 0 {
		return nil
	}
	data, err := json.Marshal(changed)
	if err != nil {
		return err
	}
	_, err = t.Log(h, store.Event{Type: store.EventThreadUpdated, Data: data})
	return err
}

// fieldName returns the JSON name of a field.
func fieldName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
