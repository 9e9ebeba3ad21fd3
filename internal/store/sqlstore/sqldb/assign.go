package sqldb

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"math"
	"reflect"
)

// assign stores a value of the driver in dst.
func assign(dst any, v driver.Value) error {
	switch d := dst.(type) {
	case *string:
		if s, ok := v.(string); ok {
			*d = s
			return nil
		}
	case *int64:
		if n, ok := v.(int64); ok {
			*d = n
			return nil
		}
	case *int:
		if n, ok := v.(int64); ok {
			*d = int(n)
			return nil
		}
	case *bool:
		if n, ok := v.(int64); ok {
			*d = n != 0
			return nil
		}
	case *Text:
		switch v := v.(type) {
		case nil:
			d.String, d.Valid = "", false
			return nil
		case string:
			d.String, d.Valid = v, true
			return nil
		}
	case *sql.NullString:
		switch v := v.(type) {
		case nil:
			*d = sql.NullString{}
			return nil
		case string:
			*d = sql.NullString{String: v, Valid: true}
			return nil
		}
		return d.Scan(v)
	case *sql.NullInt64:
		switch v := v.(type) {
		case nil:
			*d = sql.NullInt64{}
			return nil
		case int64:
			*d = sql.NullInt64{Int64: v, Valid: true}
			return nil
		}
		return d.Scan(v)
	case *[]byte:
		switch v := v.(type) {
		case nil:
			*d = nil
			return nil
		case []byte:
			*d = v // the driver's own copy
			return nil
		case string:
			*d = []byte(v)
			return nil
		}
	case sql.Scanner:
		return d.Scan(v)
	}
	return assignKind(reflect.ValueOf(dst).Elem(), v)
}

// assignKind is assign for named types and for other sizes of numbers.
func assignKind(to reflect.Value, v driver.Value) error {
	switch v := v.(type) {
	case string:
		if to.Kind() == reflect.String {
			to.SetString(v)
			return nil
		}
	case int64:
		switch {
		case to.CanInt() && !to.OverflowInt(v):
			to.SetInt(v)
			return nil
		case to.CanUint() && v >= 0 && !to.OverflowUint(uint64(v)):
			to.SetUint(uint64(v))
			return nil
		case to.Kind() == reflect.Bool:
			to.SetBool(v != 0)
			return nil
		case to.CanFloat():
			to.SetFloat(float64(v))
			return nil
		}
	case float64:
		switch {
		case to.CanFloat():
			to.SetFloat(v)
			return nil
		case to.CanInt() && v == math.Trunc(v) && math.Abs(v) < 1<<53:
			to.SetInt(int64(v))
			return nil
		}
	}
	return fmt.Errorf("a %T does not fit into a %s", v, to.Type())
}
