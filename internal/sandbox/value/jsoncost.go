package value

// JSONCost returns about how many bytes of memory a decoded JSON text needs besides the text itself, without decoding it.
func JSONCost(b []byte) int64 {
	var n int64
	quoted := false
	for i := 0; i < len(b); i++ {
		c := b[i]
		switch {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
			if quoted {
				n += costHeader
			}
		case quoted:
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
