package outbound

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Host is a pattern of hosts: a name, an address, or "*.example.com" for all names below one; with ":port" for that
// port only.
type Host struct {
	name string // in lower case; ".example.com" for a pattern
	port string // any when empty
}

// ParseHost parses a pattern. The error says what is expected.
func ParseHost(text string) (Host, error) {
	name, port := strings.ToLower(text), ""
	if h, p, err := net.SplitHostPort(name); err == nil {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return Host{}, fmt.Errorf("%q: the port must be a number from 1 to 65535", text)
		}
		name, port = h, p
	}
	name = strings.TrimSuffix(strings.Trim(name, "[]"), ".")
	if ip, err := netip.ParseAddr(name); err == nil {
		return Host{name: ip.Unmap().String(), port: port}, nil
	}
	plain, wild := strings.CutPrefix(name, "*.")
	if len(validation.IsDNS1123Subdomain(plain)) > 0 {
		return Host{}, fmt.Errorf("%q is not a host: give a name such as api.example.com, *.example.com or api.example.com:8443, or an IP address", text)
	}
	if wild {
		name = "." + plain
	}
	return Host{name: name, port: port}, nil
}

// ParseHosts parses patterns.
func ParseHosts(texts []string) ([]Host, error) {
	list := make([]Host, 0, len(texts))
	for _, text := range texts {
		h, err := ParseHost(text)
		if err != nil {
			return nil, err
		}
		list = append(list, h)
	}
	return list, nil
}

// matches reports whether a canonical host and a port match the pattern.
func (h Host) matches(host, port string) bool {
	if h.port != "" && h.port != port {
		return false
	}
	if strings.HasPrefix(h.name, ".") {
		return strings.HasSuffix(host, h.name)
	}
	return host == h.name
}

// Match reports whether a URL's host matches one of the patterns.
func Match(list []Host, u *url.URL) bool { return match(list, u.Hostname(), Port(u)) }

func match(list []Host, host, port string) bool {
	host = canonical(host)
	for _, h := range list {
		if h.matches(host, port) {
			return true
		}
	}
	return false
}

// canonical returns a host in the form of patterns.
func canonical(host string) string {
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	return host
}

// Port returns the port of a URL, or the default port of its scheme.
func Port(u *url.URL) string {
	switch port := u.Port(); {
	case port != "":
		return port
	case u.Scheme == "https":
		return "443"
	default:
		return "80"
	}
}

// SameOrigin reports whether two URLs have the same scheme, host and port.
func SameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && canonical(a.Hostname()) == canonical(b.Hostname()) && Port(a) == Port(b)
}
