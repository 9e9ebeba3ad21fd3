package membudget

// What decoded JSON takes, in bytes: measured, like the costs of values of code in internal/sandbox/value.
const (
	costSlot     = 16  // an interface, as a member of an array
	costHeader   = 24  // a slice or a string with its rounding
	costObject   = 48  // an empty map
	costGroup    = 272 // the slots of a map of one to eight names
	costProperty = 72  // each further name of a larger map
)

// JSONCost returns about how many bytes of memory a decoded JSON text needs besides the text itself, without decoding it.
func JSONCost(b []byte) int64 {
	var m JSONMeter
	return m.Cost(b)
}

// JSONMeter is JSONCost for a text that comes in pieces. The zero value is at the begin of a text.
type JSONMeter struct{ quoted, escaped bool }

// Cost returns what the next piece of the text adds.
func (m *JSONMeter) Cost(b []byte) int64 {
	var n int64
	for _, c := range b {
		switch {
		case m.escaped:
			m.escaped = false
		case m.quoted && c == '\\':
			m.escaped = true
		case c == '"':
			m.quoted = !m.quoted
			if m.quoted {
				n += costHeader
			}
		case m.quoted:
		case c == '{':
			n += costObject + costGroup
		case c == '[':
			n += costHeader + costSlot
		case c == ',':
			n += costProperty
		}
	}
	return n + int64(len(b))
}
