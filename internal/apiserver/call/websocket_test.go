package call

import (
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = DescribeTable("The subprotocol of a WebSocket", Label("EVT-01"), func(offered []string, want ...string) {
	r := &http.Request{Header: http.Header{"Sec-Websocket-Protocol": offered}}
	Expect(subprotocols(r, "own")).To(Equal(append([]string{"own"}, want...)))
},
	Entry("is our own", nil),
	Entry("is what the client offers", []string{"v1.events, own"}, "v1.events", "own"),
	Entry("is never the token, which is still there when the caller is known by something else", []string{"base64url.bearer.authorization.k8s.io.eA", " v1.events ,"}, "v1.events"),
)
