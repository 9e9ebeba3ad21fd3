package app

import (
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/ownclock"
	"github.com/skein-dev/skein/internal/tool/outbound"
	"github.com/skein-dev/skein/internal/webhook"
)

// addWebhooks sends what Webhooks are told.
func (o *Options) addWebhooks(mgr ctrl.Manager, data *data, resolver *definitions.Resolver, network *outbound.Network) error {
	return mgr.Add(webhook.NewSender(webhook.Options{
		Store: data.store, Targets: resolver.Webhooks, Network: network, Clock: ownclock.Clock{}, Log: o.Logger.WithName("webhooks"),
		Owner: o.Identity, Clean: o.secrets.Text,
	}))
}
