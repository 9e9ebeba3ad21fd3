package auth

import (
	"context"
	"net"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/skein-dev/skein/internal/apiserver/flow"
)

// All requests share the reviews that the API server does for this replica in a second. Without lines one caller, who needs no right and
// no identity for it, would use them up with made-up tokens or names.
const (
	// tokensAtOnce bounds the tokens of one address that the API server is asked about at once.
	tokensAtOnce = 8
	// rightsAtOnce bounds the rights of one user.
	rightsAtOnce = 16
	// maxWaiting bounds what one of them may have waiting, because each takes memory.
	maxWaiting = 2000
)

// inLines returns an authenticator that asks about the tokens of each address in a line of its own.
func inLines(inner authenticator.Request) authenticator.Request {
	lines := flow.NewLines(tokensAtOnce, maxWaiting)
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		if !hasToken(r) {
			return inner.AuthenticateRequest(r)
		}
		address, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			address = r.RemoteAddr
		}
		leave, err := lines.Enter(r.Context(), address)
		if err != nil {
			return nil, false, err
		}
		defer leave()
		// The review goes on when its caller disconnects, so the place is taken until it ends.
		return inner.AuthenticateRequest(r.WithContext(context.WithoutCancel(r.Context())))
	})
}

// hasToken reports whether a request brings a token, in one of the two places where servers of Kubernetes take them.
func hasToken(r *http.Request) bool {
	return r.Header.Get("Authorization") != "" ||
		strings.Contains(strings.Join(r.Header.Values("Sec-Websocket-Protocol"), ","), "base64url.bearer.authorization.k8s.io.")
}

// linedAuthorizer asks about the rights of each user in a line of his own.
type linedAuthorizer struct {
	authorizer.Authorizer
	lines *flow.Lines
}

// Authorize implements authorizer.Authorizer.
func (l *linedAuthorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	var name string
	if who := a.GetUser(); who != nil {
		name = flow.Payer(who.GetName())
	}
	leave, err := l.lines.Enter(ctx, name)
	if err != nil {
		return authorizer.DecisionNoOpinion, "", err
	}
	defer leave()
	return l.Authorizer.Authorize(ctx, a)
}

// ConditionsAwareAuthorize implements authorizer.Authorizer.
func (l *linedAuthorizer) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(l.Authorize(ctx, a))
}
