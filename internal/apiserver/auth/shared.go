package auth

import (
	"context"
	"net/http"
	"net/netip"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/skein-dev/skein/internal/apiserver/flow"
)

// All requests share the reviews that the API server does for this replica in a second. Without a semaphore for each caller, one caller
// without any right or identity could use all of them up with made-up tokens or names.
const (
	// tokensAtOnce bounds the TokenReviews for one address, or for one user whose tokens were accepted before, that are under way.
	tokensAtOnce = 8
	// rightsAtOnce bounds the SubjectAccessReviews for one user that are under way.
	rightsAtOnce = 16
	// maxWaiting bounds how many requests of one address or user are reviewed or wait for it. Each holds the stacks of a few
	// goroutines, its buffers and its headers, some 50 KiB when these are small, so one address takes about 20 MiB. By default a user may have 100 requests under way: four times as many
	// may come at once, as they do when a replica has restarted, before clients are told to try again. When a review takes 10 ms, the last one waits half a second.
	maxWaiting = 400
)

// limitedAuthenticator is an authenticator with a semaphore for the tokens of each address, and one for the tokens of each user that
// were accepted before.
type limitedAuthenticator struct {
	authenticator.Request
	addresses, users *flow.Semaphores
	accepted         *acceptedTokens
}

// limitReviews returns inner with a limit on how many tokens of one caller it reviews at once, so that a caller with many requests does
// not keep those of others waiting. A token that was accepted before counts for its user, any other one for the address that sent it.
func limitReviews(inner authenticator.Request) authenticator.Request {
	return &limitedAuthenticator{
		Request:   inner,
		addresses: flow.NewSemaphores(tokensAtOnce, maxWaiting, "requests from the address %q wait until the API server has reviewed their tokens"),
		users:     flow.NewSemaphores(tokensAtOnce, maxWaiting, "requests of the user %q wait until the API server has reviewed their tokens"),
		accepted:  newAcceptedTokens(),
	}
}

// AuthenticateRequest implements authenticator.Request.
func (l *limitedAuthenticator) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if !hasToken(r) {
		growStack()
		return l.Request.AuthenticateRequest(r)
	}
	token := tokenOf(r)
	release, err := l.acquire(r, token)
	if err != nil {
		flow.RecordRefusal(r.Context(), err)
		return nil, false, err
	}
	defer release()
	growStack() // not before, because very many may wait
	// The review goes on when its caller disconnects, so the slot is taken until it ends.
	who, ok, err := l.Request.AuthenticateRequest(r.WithContext(context.WithoutCancel(r.Context())))
	if ok && token != "" && !hasToken(r) { // with a client certificate the token stays in the header, and was not reviewed
		l.accepted.add(token, who.User.GetName())
	}
	return who, ok, err
}

// acquire waits for a slot of the caller: of the user if the token was accepted before, else of the address.
func (l *limitedAuthenticator) acquire(r *http.Request, token string) (release func(), err error) {
	if name, known := l.accepted.name(token); known {
		return l.users.Acquire(r.Context(), name)
	}
	at, _ := netip.ParseAddrPort(r.RemoteAddr)
	return l.addresses.Acquire(r.Context(), flow.Network(at.Addr()).String())
}

// limitedAuthorizer is an authorizer that reviews rights, with a semaphore for those of each user.
type limitedAuthorizer struct {
	authorizer.Authorizer
	free       authorizer.Authorizer // is asked first, and needs no review
	semaphores *flow.Semaphores
}

// Authorize implements authorizer.Authorizer.
func (l *limitedAuthorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if decision, reason, err := l.free.Authorize(ctx, a); decision != authorizer.DecisionNoOpinion {
		return decision, reason, err
	}
	var name string
	if who := a.GetUser(); who != nil {
		name = flow.Distinguisher(who.GetName())
	}
	release, err := l.semaphores.Acquire(ctx, name)
	if err != nil {
		flow.RecordRefusal(ctx, err)
		return authorizer.DecisionNoOpinion, "", err
	}
	defer release()
	return l.Authorizer.Authorize(ctx, a)
}

// ConditionsAwareAuthorize implements authorizer.Authorizer.
func (l *limitedAuthorizer) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(l.Authorize(ctx, a))
}
