package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

func newQuota(p *plugin) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "quota",
		Short: "Show what the namespace uses of its quotas",
		Long: `Show what the namespace uses of its quotas: threads, running threads, bytes of files and of messages, tokens and cost of the day, and
pending effects. The ThreadQuotas of the namespace set them. Tokens and cost count from midnight UTC.`,
		Example: `  kubectl skein quota -n team-a`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkListOutput(output); err != nil {
				return err
			}
			c, ns, err := p.objects()
			if err != nil {
				return err
			}
			var list skeinv1.ThreadQuotaList
			if err := c.List(cmd.Context(), &list, client.InNamespace(ns)); err != nil {
				return err
			}
			if done, err := p.structured(output, objectList("ThreadQuotaList", list.Items), namesOf(list.Items, func(q *skeinv1.ThreadQuota) string { return "threadquota.skein.dev/" + q.Name })); done {
				return err
			}
			return p.printQuotas(ns, list.Items)
		},
	}
	outputFlag(cmd, &output)
	return cmd
}

// quotaResources are the resources in the order in which they are shown.
var quotaResources = []string{"threads", "runningThreads", "bytes", "messageBytes", "tokensPerDay", "costPerDay", "pendingEffects"}

func (p *plugin) printQuotas(ns string, quotas []skeinv1.ThreadQuota) error {
	if len(quotas) == 0 {
		fmt.Fprintf(p.ErrOut, "Namespace %s has no ThreadQuota: only the manager's flag --namespace-quota bounds it.\n", ns)
		return nil
	}
	w := tabwriter.NewWriter(p.Out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "QUOTA\tRESOURCE\tUSED\tHARD\tFULL")
	for i := range quotas {
		q := &quotas[i]
		full := ""
		if c := meta.FindStatusCondition(q.Status.Conditions, skeinv1.ConditionFull); c != nil {
			full = c.Message
		}
		hard, used := amountsOf(&q.Spec.Hard), amountsOf(q.Status.Used)
		for _, r := range quotaResources {
			if hard[r] == "" {
				continue
			}
			now, mark := used[r], ""
			if now == "" {
				now = "?"
			}
			if strings.Contains(full, r) {
				mark = "full"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", q.Name, r, now, hard[r], mark)
		}
	}
	return w.Flush()
}

// amountsOf returns amounts as text, by their names.
func amountsOf(a *skeinv1.QuotaAmounts) map[string]string {
	out := map[string]string{}
	data, err := json.Marshal(a)
	var fields map[string]any
	if err != nil || json.Unmarshal(data, &fields) != nil {
		return out
	}
	for name, v := range fields {
		if n, ok := v.(float64); ok {
			out[name] = fmt.Sprintf("%.0f", n)
		} else {
			out[name] = fmt.Sprint(v)
		}
	}
	return out
}
