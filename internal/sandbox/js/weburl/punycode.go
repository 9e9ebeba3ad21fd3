package weburl

import "math"

// The parameters of RFC 3492.
const (
	punyBase, punyMin, punyMax, punySkew, punyDamp = 36, 1, 26, 38, 700
	punyDigits                                     = "abcdefghijklmnopqrstuvwxyz0123456789"
)

// punycode returns a label of a host as xn--…, or as it is if it has only letters of ASCII.
func punycode(label string) string {
	runes := []rune(label)
	out := []byte("xn--")
	for _, r := range runes {
		if r < 0x80 {
			out = append(out, byte(r))
		}
	}
	basic := len(out) - len("xn--")
	if basic == len(runes) {
		return label
	}
	if basic > 0 {
		out = append(out, '-')
	}
	n, delta, bias := rune(0x80), 0, 72
	for done := basic; done < len(runes); n++ {
		next := rune(math.MaxInt32)
		for _, r := range runes {
			if r >= n {
				next = min(next, r)
			}
		}
		delta += int(next-n) * (done + 1)
		n = next
		for _, r := range runes {
			if r < n {
				delta++
			}
			if r != n {
				continue
			}
			q := delta
			for k := punyBase; ; k += punyBase {
				t := min(max(k-bias, punyMin), punyMax)
				if q < t {
					break
				}
				out = append(out, punyDigits[t+(q-t)%(punyBase-t)])
				q = (q - t) / (punyBase - t)
			}
			out = append(out, punyDigits[q])
			bias = adapt(delta, done+1, done == basic)
			delta = 0
			done++
		}
		delta++
	}
	return string(out)
}

// adapt returns the next bias of the encoding.
func adapt(delta, points int, first bool) int {
	if delta /= 2; first {
		delta = delta * 2 / punyDamp
	}
	delta += delta / points
	k := 0
	for ; delta > (punyBase-punyMin)*punyMax/2; k += punyBase {
		delta /= punyBase - punyMin
	}
	return k + (punyBase-punyMin+1)*delta/(delta+punySkew)
}
