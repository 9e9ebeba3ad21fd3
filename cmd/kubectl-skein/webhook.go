package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

func newWebhook(p *plugin) *cobra.Command {
	cmd := &cobra.Command{Use: "webhook", Short: "List the deliveries of Webhooks, and send them again"}
	cmd.AddCommand(newWebhookDeliveries(p), newWebhookRedeliver(p))
	return cmd
}

func newWebhookDeliveries(p *plugin) *cobra.Command {
	var page client.DeliveryPage
	var output string
	cmd := &cobra.Command{
		Use:   "deliveries [WEBHOOK]",
		Short: "List the deliveries of the namespace's Webhooks, newest first",
		Example: `  # What was given up
  kubectl skein webhook deliveries --status dead`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkListOutput(output); err != nil {
				return err
			}
			statuses := []string{runtimev1.DeliveryPending, runtimev1.DeliveryDelivered, runtimev1.DeliveryDead}
			if page.Status != "" && !slices.Contains(statuses, page.Status) {
				return fmt.Errorf("--status=%s: it must be one of %s", page.Status, strings.Join(statuses, ", "))
			}
			if page.Limit < 1 || page.Limit > runtimev1.MaxPageSize {
				return fmt.Errorf("--limit=%d: it must be a number from 1 to %d", page.Limit, runtimev1.MaxPageSize)
			}
			if len(args) > 0 {
				page.Webhook = args[0]
			}
			c, ns, err := p.client()
			if err != nil {
				return err
			}
			list, err := c.WebhookDeliveries(cmd.Context(), ns, page)
			if err != nil {
				return err
			}
			if page.Webhook != "" && len(list.Deliveries) == 0 {
				if err := p.hasWebhook(cmd.Context(), page.Webhook); err != nil {
					return err
				}
			}
			if done, err := p.structured(output, list, namesOf(list.Deliveries, func(d *runtimev1.WebhookDelivery) string { return "delivery/" + d.ID })); done {
				return err
			}
			w := tabwriter.NewWriter(p.Out, 0, 0, 3, ' ', 0)
			fmt.Fprintln(w, wideRow(output, "ID\tWEBHOOK\tEVENT\tTHREAD\tSTATUS\tATTEMPTS\tWHEN\tERROR", "AGENT", "CODE"))
			for i := range list.Deliveries {
				d := &list.Deliveries[i]
				fmt.Fprintln(w, wideRow(output, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s", d.ID, d.Webhook, d.Event, orDash(d.ThreadName), d.Status, d.Attempts, dueText(d.CreatedAt), oneLine(d.Error, "")), d.AgentID, d.Code))
			}
			return w.Flush()
		},
	}
	outputFlag(cmd, &output)
	f := cmd.Flags()
	f.StringVar(&page.Status, "status", "", "List only deliveries with this status: pending, delivered or dead.")
	f.IntVar(&page.Limit, "limit", 20, "How many deliveries to list, the newest ones.")
	return cmd
}

func newWebhookRedeliver(p *plugin) *cobra.Command {
	var dead bool
	var webhook string
	cmd := &cobra.Command{
		Use:   "redeliver [ID]",
		Short: "Send a delivery again, with the same id",
		Example: `  # One of them
  kubectl skein webhook redeliver 0b8c6a0e-6c0a-4c53-9a71-0f5e5f3f8f10.5f0c3a1b2d4e6f708192a3b4c5d6e7f8

  # All that were given up
  kubectl skein webhook redeliver --dead`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == dead {
				return errors.New("name a delivery, or give --dead for all that were given up: kubectl skein webhook deliveries lists them")
			}
			c, ns, err := p.client()
			if err != nil {
				return err
			}
			ids := args
			for page := (client.DeliveryPage{Webhook: webhook, Status: runtimev1.DeliveryDead, Limit: runtimev1.MaxPageSize}); dead; {
				list, err := c.WebhookDeliveries(cmd.Context(), ns, page)
				if err != nil {
					return err
				}
				for i := range list.Deliveries {
					ids = append(ids, list.Deliveries[i].ID)
				}
				if page.Continue = list.Continue; !list.HasMore {
					break
				}
			}
			if webhook != "" && len(ids) == 0 {
				if err := p.hasWebhook(cmd.Context(), webhook); err != nil {
					return err
				}
			}
			for _, id := range ids {
				d, err := c.Redeliver(cmd.Context(), ns, id)
				if err != nil {
					return err
				}
				p.changed("delivery/"+d.ID, "delivery/%s redelivered to %s\n", d.ID, d.Webhook)
			}
			if dead && !p.onlyNames {
				fmt.Fprintf(p.Out, "deliveries sent again: %d\n", len(ids))
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&dead, "dead", false, "Send all deliveries again that were given up.")
	f.StringVar(&webhook, "webhook", "", "With --dead: only those of this Webhook.")
	return cmd
}

// hasWebhook returns an error when the namespace has no Webhook of that name. Deliveries outlive their Webhook, so it is only asked
// when there are none. Those who may not read Webhooks learn nothing.
func (p *plugin) hasWebhook(ctx context.Context, name string) error {
	cfg, ns, err := p.config()
	if err != nil {
		return err
	}
	c, err := threadObjects(cfg)
	if err != nil {
		return err
	}
	err = c.Get(ctx, types.NamespacedName{Namespace: ns, Name: name}, &skeinv1.Webhook{})
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}
