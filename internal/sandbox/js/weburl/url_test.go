package weburl_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/skein-dev/skein/internal/sandbox/js/weburl"
)

func TestWebURL(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "URLs as browsers parse them")
}

// invalid stands for a URL that is refused.
const invalid = ""

// parse returns the whole URL, or invalid.
func parse(text string, base *weburl.URL) string {
	u, ok := weburl.Parse(text, base)
	if !ok {
		return invalid
	}
	return u.String()
}

var _ = DescribeTable("a URL", func(text, want string) {
	Expect(parse(text, nil)).To(Equal(want))
	if want != invalid {
		Expect(parse(want, nil)).To(Equal(want), "parsing what was written changes nothing")
	}
},
	Entry(nil, "https://x.example/a%20b", "https://x.example/a%20b"),
	Entry(nil, "https://x.example/50%-off?50%#50%", "https://x.example/50%-off?50%#50%"),
	Entry(nil, "https://x.example", "https://x.example/"),
	Entry(nil, " https://x.exa\nmple/\t\n", "https://x.example/"),
	Entry(nil, `https://x.example/a b/c%2Fd?q=é "'<>#f é"<>`+"`", "https://x.example/a%20b/c%2Fd?q=%C3%A9%20%22%27%3C%3E#f%20%C3%A9%22%3C%3E%60"),
	Entry(nil, "HTTP://User:Pa%20ss@EXAMPLE.com:80/../a/./b/%2e%2E/c", "http://User:Pa%20ss@example.com/a/c"),
	Entry(nil, "http://a@b@c/", "http://a%40b@c/"),
	Entry(nil, `https:\\x.example\a\..\b`, "https://x.example/b"),
	Entry(nil, "https:x.example/a", "https://x.example/a"),
	Entry(nil, "https://x.example:0443/", "https://x.example/"),
	Entry(nil, "https://x.example:8080", "https://x.example:8080/"),
	Entry(nil, "https://x.example:65536", invalid),
	Entry(nil, "https://x.example:8a", invalid),
	Entry(nil, "https://", invalid),
	Entry(nil, "https://?q", invalid),
	Entry(nil, "https://u@/", invalid),
	Entry(nil, "https://a b/", invalid),
	Entry(nil, "https://a%20b/", invalid),
	Entry(nil, "https://a|b/", invalid),
	Entry(nil, "https://a%ff/", invalid),
	Entry(nil, "https://a%41.example", "https://aa.example/"),
	Entry(nil, "https://BÜCHER.example/", "https://xn--bcher-kva.example/"),
	Entry(nil, "https://他们为什么不说中文.x/", "https://xn--ihqwcrb4cv8a8dqg056pqjye.x/"),
	Entry(nil, "https://3年b組金八先生/", "https://xn--3b-ww4c5e180e575a65lsy2b/"),
	Entry(nil, "http://127.1", "http://127.0.0.1/"),
	Entry(nil, "http://0x7f000001", "http://127.0.0.1/"),
	Entry(nil, "http://0177.0.0.1.", "http://127.0.0.1/"),
	Entry(nil, "http://256.1.1.1", invalid),
	Entry(nil, "http://1.2.3.4.5", invalid),
	Entry(nil, "http://a.09", invalid),
	Entry(nil, "http://[2001:DB8:0:0:1:0:0:1]:80", "http://[2001:db8::1:0:0:1]/"),
	Entry(nil, "http://[::ffff:1.2.3.4]", "http://[::ffff:102:304]/"),
	Entry(nil, "http://[::1", invalid),
	Entry(nil, "http://[::1%25eth0]", invalid),
	Entry(nil, "mailto:a@b.example?subject=x y", "mailto:a@b.example?subject=x%20y"),
	Entry(nil, "foo://H:80/a/../b", "foo://H:80/b"),
	Entry(nil, "foo:/..//b", "foo:/.//b"),
	Entry(nil, "file:///a/b", "file:///a/b"),
	Entry(nil, "file://localhost/a", "file:///a"),
	Entry(nil, "file://h:80/a", invalid),
	Entry(nil, "/a", invalid),
	Entry(nil, "1:2", invalid),
	Entry(nil, "", invalid),
)

var _ = DescribeTable("a reference", func(text, base, want string) {
	b, ok := weburl.Parse(base, nil)
	Expect(ok).To(BeTrue())
	before := b.String()
	Expect(parse(text, b)).To(Equal(want))
	Expect(b.String()).To(Equal(before))
},
	Entry(nil, "", "https://x.example/a/b?q#f", "https://x.example/a/b?q"),
	Entry(nil, "#g", "https://x.example/a/b?q#f", "https://x.example/a/b?q#g"),
	Entry(nil, "?r", "https://x.example/a/b?q#f", "https://x.example/a/b?r"),
	Entry(nil, "c?", "https://u:p@x.example:81/a/b?q#f", "https://u:p@x.example:81/a/c?"),
	Entry(nil, "../../c/", "https://x.example/a/b", "https://x.example/c/"),
	Entry(nil, "/c", "https://x.example/a/b", "https://x.example/c"),
	Entry(nil, "//y.example:81/c", "https://u@x.example/a/b", "https://y.example:81/c"),
	Entry(nil, "https:c", "https://x.example/a/b", "https://x.example/a/c"),
	Entry(nil, "http:c", "https://x.example/a/b", "http://c/"),
	Entry(nil, "1:2", "https://x.example/a/b", "https://x.example/a/1:2"),
	Entry(nil, "50%", "https://x.example/a/b", "https://x.example/a/50%"),
	Entry(nil, "c", "foo://h/a/b", "foo://h/a/c"),
	Entry(nil, "c", "file:///a/b", "file:///a/c"),
	Entry(nil, "#f", "mailto:a@b.example?q", "mailto:a@b.example?q#f"),
	Entry(nil, "c", "mailto:a@b.example", invalid),
)

var _ = DescribeTable("a part that is set", func(url, part, value, want string) {
	u, ok := weburl.Parse(url, nil)
	Expect(ok).To(BeTrue())
	u.Set(part, value)
	Expect(u.String()).To(Equal(want))
},
	Entry(nil, "https://x.example/a", "protocol", "HTTP:", "http://x.example/a"),
	Entry(nil, "https://x.example:80/a", "protocol", "http", "http://x.example/a"),
	Entry(nil, "https://x.example/a", "protocol", "foo", "https://x.example/a"),
	Entry(nil, "https://x.example/a", "username", "a b:%41", "https://a%20b%3A%41@x.example/a"),
	Entry(nil, "mailto:a", "username", "u", "mailto:a"),
	Entry(nil, "https://x.example/a", "host", "y.example:81/b", "https://y.example:81/a"),
	Entry(nil, "https://x.example:80/a", "host", "y.example", "https://y.example:80/a"),
	Entry(nil, "https://x.example/a", "host", "a b", "https://x.example/a"),
	Entry(nil, "https://x.example/a", "host", "", "https://x.example/a"),
	Entry(nil, "https://x.example/a", "hostname", "y.example:81", "https://x.example/a"),
	Entry(nil, "https://x.example/a", "hostname", "[::1]", "https://[::1]/a"),
	Entry(nil, "https://x.example/a", "port", "8080x", "https://x.example:8080/a"),
	Entry(nil, "https://x.example:80/a", "port", "443", "https://x.example/a"),
	Entry(nil, "https://x.example:80/a", "port", "", "https://x.example/a"),
	Entry(nil, "https://x.example:80/a", "port", "70000", "https://x.example:80/a"),
	Entry(nil, "https://x.example/a", "pathname", "/a%20b/c d?#50%/..", "https://x.example/a%20b/"),
	Entry(nil, "https://x.example/a", "pathname", "/a?b#c%", "https://x.example/a%3Fb%23c%"),
	Entry(nil, "mailto:a", "pathname", "b", "mailto:a"),
	Entry(nil, "https://x.example/a?b#c", "search", "?d e#50%'", "https://x.example/a?d%20e%2350%%27#c"),
	Entry(nil, "https://x.example/a?b#c", "search", "", "https://x.example/a#c"),
	Entry(nil, "https://x.example/a?b#c", "hash", "d e#", "https://x.example/a?b#d%20e#"),
	Entry(nil, "https://x.example/a?b#c", "hash", "", "https://x.example/a?b"),
)

var _ = DescribeTable("the origin", func(url, want string) {
	u, ok := weburl.Parse(url, nil)
	Expect(ok).To(BeTrue())
	Expect(u.Origin()).To(Equal(want))
},
	Entry(nil, "https://u:p@x.example:81/a", "https://x.example:81"),
	Entry(nil, "http://x.example:80/a", "http://x.example"),
	Entry(nil, "blob:https://x.example/1", "https://x.example"),
	Entry(nil, "foo://x.example/", "null"),
	Entry(nil, "file:///a", "null"),
)

func FuzzParse(f *testing.F) {
	for _, text := range []string{"https://u:p@x.example:81/a/../b?q#f", "foo:/..//b", "http://0x7f.1", "mailto:a b", "https://Ü\u00ad.x/"} {
		f.Add(text, "c")
	}
	f.Fuzz(func(t *testing.T, text, ref string) {
		u, ok := weburl.Parse(text, nil)
		if !ok {
			return
		}
		_, _ = weburl.Parse(ref, u)
		again, ok := weburl.Parse(u.String(), nil)
		if !ok {
			t.Fatalf("%q became %q, which is not valid", text, u)
		}
		for _, part := range []string{"protocol", "username", "host", "port", "pathname", "search", "hash"} {
			again.Set(part, ref)
			if _, ok := weburl.Parse(again.String(), nil); !ok {
				t.Fatalf("%q became %q by setting %s to %q", u, again, part, ref)
			}
		}
	})
}
