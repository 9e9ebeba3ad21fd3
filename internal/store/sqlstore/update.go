package sqlstore

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/skein-dev/skein/internal/store"
)

// fieldsText returns the column of a thread's fields; NULL when it has none.
func fieldsText(f *store.Fields) (any, error) {
	data, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("the fields of a thread cannot be written as JSON: %w", err)
	}
	if string(data) == "{}" {
		return nil, nil
	}
	return string(data), nil
}

func fieldsFrom(column text, f *store.Fields) error {
	if !column.Valid {
		return nil
	}
	if err := json.Unmarshal([]byte(column.String), f); err != nil {
		return fmt.Errorf("its fields are damaged: %w", err)
	}
	return nil
}

func (t *tx) expectVersion(h *head, expected int64) error {
	if h.version != expected {
		return &store.VersionError{ThreadID: h.id, Expected: expected, Current: h.version}
	}
	return nil
}

// threadFields is what UpdateThread may change.
type threadFields struct {
	title, status string
	archivedAt    int64
	fields        store.Fields
}

func (t *tx) updateThread(h *head, op *store.UpdateThread) error {
	if op.ExpectVersion != nil {
		if err := t.expectVersion(h, *op.ExpectVersion); err != nil {
			return err
		}
	}
	var now threadFields
	var column text
	if err := t.row(t.ctx, qThreadFields, []any{h.key}, &now.title, &now.status, &now.archivedAt, &column); err != nil {
		return err
	}
	if err := fieldsFrom(column, &now.fields); err != nil {
		return fmt.Errorf("thread %s: %w", h.id, err)
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
			next.archivedAt = t.now
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
	return t.writeThread(h, now, next)
}

func (t *tx) writeThread(h *head, before, after threadFields) error {
	fields, err := fieldsText(&after.fields)
	if err != nil {
		return err
	}
	if err := t.write(t.ctx, qUpdateThread, after.title, after.status, after.archivedAt, fields, h.key); err != nil {
		return err
	}
	if before.archivedAt != after.archivedAt {
		if err := t.write(t.ctx, qSetArchived, flag(after.archivedAt != 0), h.key); err != nil {
			return err
		}
	}
	h.touch(store.ChangedThread)
	return t.logUpdated(h, before, after)
}

// flag returns a boolean in the form of the columns, 0 or 1.
func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// logUpdated logs the new values of the changed fields.
func (t *tx) logUpdated(h *head, before, after threadFields) error {
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
	_, err = t.log(h, store.Event{Type: store.EventThreadUpdated, Data: data})
	return err
}

// fieldName returns the JSON name of a field.
func fieldName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
