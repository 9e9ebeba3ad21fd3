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

// All requests share the reviews that the API server does for this replica in a second. Without a semaphore for each caller, one caller
// without any right or identity could use all of them up with made-up tokens or names.
const (
	// tokensAtOnce bounds the TokenReviews for one address that are under way.
	tokensAtOnce = 8
	// rightsAtOnce bounds the SubjectAccessReviews for one user that are under way.
	rightsAtOnce = 16
	// maxWaiting bounds how many requests of one address or user wait, because each takes memory.
	maxWaiting = 2000
)

// limitReviews returns an authenticator with a semaphore for the tokens of each address.
func limitReviews(inner authenticator.Request) authenticator.Request {
	semaphores := flow.NewSemaphores(tokensAtOnce, maxWaiting)
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		if !hasToken(r) {
			return inner.AuthenticateRequest(r)
		}
		address, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			address = r.RemoteAddr
		}
		release, err := semaphores.Acquire(r.Context(), address)
		if err != nil {
			return nil, false, err
		}
		defer release()
		// The review goes on when its caller disconnects, so the slot is taken until it ends.
		return inner.AuthenticateRequest(r.WithContext(context.WithoutCancel(r.Context())))
	})
}

// hasToken reports whether a request brings a token, in one of the two places where servers of Kubernetes take them.
func hasToken(r *http.Request) bool {
	return r.Header.Get("Authorization") != "" ||
		strings.Contains(strings.Join(r.Header.Values("Sec-Websocket-Protocol"), ","), "base64url.bearer.authorization.k8s.io.")
}

// limitedAuthorizer is an authorizer with a semaphore for the rights of each user.
type limitedAuthorizer struct {
	authorizer.Authorizer
	semaphores *flow.Semaphores
}

// Authorize implements authorizer.Authorizer.
func (l *limitedAuthorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	var name string
	if who := a.GetUser(); who != nil {
		name = flow.Distinguisher(who.GetName())
	}
	release, err := l.semaphores.Acquire(ctx, name)
	if err != nil {
		return authorizer.DecisionNoOpinion, "", err
	}
	defer release()
	return l.Authorizer.Authorize(ctx, a)
}

// ConditionsAwareAuthorize implements authorizer.Authorizer.
func (l *limitedAuthorizer) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(l.Authorize(ctx, a))
}
