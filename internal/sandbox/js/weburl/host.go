package weburl

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// parseHost returns the host in its normal form. special says whether the URL's scheme is special.
func parseHost(text string, special bool) (string, bool) {
	if strings.HasPrefix(text, "[") {
		a, err := netip.ParseAddr(strings.TrimSuffix(text[1:], "]"))
		if !strings.HasSuffix(text, "]") || err != nil || !a.Is6() || a.Zone() != "" {
			return "", false
		}
		if a.Is4In6() {
			b := a.As16()
			return fmt.Sprintf("[::ffff:%x:%x]", int(b[12])<<8|int(b[13]), int(b[14])<<8|int(b[15])), true
		}
		return "[" + a.String() + "]", true
	}
	if !special {
		if strings.ContainsAny(text, "\x00\t\n\r #/:<>?@[\\]^|") {
			return "", false
		}
		return controlSet.encode(text), true
	}
	host := strings.ToLower(strings.ToValidUTF8(string(Decode(text)), "\uFFFD"))
	for i := range len(host) {
		if c := host[i]; c <= ' ' || c == 0x7F || strings.IndexByte("#/:<>?@[\\]^|%", c) >= 0 {
			return "", false
		}
	}
	if host == "" || strings.Contains(host, "\uFFFD") {
		return "", false
	}
	labels := strings.Split(host, ".")
	for i, label := range labels {
		labels[i] = punycode(label)
	}
	host = strings.Join(labels, ".")
	labels = strings.Split(strings.TrimSuffix(host, "."), ".")
	if last := labels[len(labels)-1]; last != "" && strings.Trim(last, "0123456789") == "" {
		return parseIPv4(labels)
	} else if _, ok := parseNumber(last); ok {
		return parseIPv4(labels)
	}
	return host, true
}

// parseIPv4 returns the address that the parts of a host with a number at the end stand for, as in 127.1 and 0x7f000001.
func parseIPv4(parts []string) (string, bool) {
	if len(parts) > 4 {
		return "", false
	}
	var address uint64
	for i, part := range parts {
		n, ok := parseNumber(part)
		most := uint64(0xFF)
		if i == len(parts)-1 { // it fills the bytes that are left
			most = 1<<(8*(5-len(parts))) - 1
		}
		if !ok || n > most {
			return "", false
		}
		if i == len(parts)-1 {
			address |= n
		} else {
			address |= n << (8 * (3 - i))
		}
	}
	return netip.AddrFrom4([4]byte{byte(address >> 24), byte(address >> 16), byte(address >> 8), byte(address)}).String(), true
}

// parseNumber returns a decimal, octal (0…) or hexadecimal (0x…) number.
func parseNumber(text string) (uint64, bool) {
	base := 10
	switch {
	case text == "":
		return 0, false
	case strings.HasPrefix(text, "0x"):
		text, base = text[2:], 16
	case len(text) > 1 && text[0] == '0':
		text, base = text[1:], 8
	}
	if text == "" {
		return 0, true
	}
	n, err := strconv.ParseUint(text, base, 64)
	return n, err == nil
}
