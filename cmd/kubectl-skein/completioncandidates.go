package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// localFiles are the arguments that name files of this machine, which the shell completes.
var localFiles = []string{"FILE", "DIR", "SOURCE", "DESTINATION"}

// places returns the candidates of arguments, by the word that the usage line has for them. The words of a command come
// before a word where it means something of its own.
func (p *plugin) places() map[string]candidates {
	return map[string]candidates{
		"THREAD": p.objectNames("ThreadList"), "CALL": p.callIDs, "RUN": p.runIDs, "TOOL": p.toolNames,
		"EFFECT": p.objectNames("ScheduledEffectList"), "WEBHOOK": p.objectNames("WebhookList"),
		"endpoint PATH": p.endpointPaths, "files rm PATH": p.filePaths, "FOLDER": p.filePaths,
		"purge ID": p.retainedIDs, "adopt ID": p.orphanIDs, "webhook redeliver ID": p.deliveryIDs,
		"skill NAME": p.skillNames, "provide NAME": p.wantedVariables, "env unset NAME": p.variables(""), "env set NAME[=VALUE]": p.variables("="),
		"KEY": p.threadKeys, "state get KEY": p.stateKeys, "state set KEY": p.stateKeys, "state delete KEY": p.stateKeys,
	}
}

// flagPlaces returns the candidates of flags.
func (p *plugin) flagPlaces() map[string]candidates {
	return map[string]candidates{
		"namespace": p.namespaces, "context": p.contexts, "thread": p.objectNames("ThreadList"), "agent": p.objectNames("AgentList"), "run": p.runIDs,
		"webhook": p.objectNames("WebhookList"), "policy": words("enqueue", "reject", "interrupt", "rollback"), "state": words(threadStates...), "archived": words("false", "true", "all"),
		"role": words("system", "user", "assistant", "tool"), "side": words("a", "b"), "check": words("auto", "always", "never"),
		"status": words(runtimev1.DeliveryPending, runtimev1.DeliveryDelivered, runtimev1.DeliveryDead),
	}
}

// argumentsOf returns the words that the usage line of a command has for its arguments, without brackets and flags.
func argumentsOf(cmd *cobra.Command) (list []string) {
	for _, word := range strings.Fields(cmd.Use)[1:] {
		if strings.HasPrefix(word, "[-") || strings.HasPrefix(word, "-") {
			break // flags, with words for their values
		}
		if strings.HasPrefix(word, "(") {
			if strings.HasPrefix(cmd.Use, "adopt (--list | ID") {
				return []string{"ID"}
			}
			break
		}
		list = append(list, strings.TrimSuffix(strings.TrimPrefix(word, "["), trimmedBracket(word)))
	}
	return list
}

// trimmedBracket returns the bracket that ends an argument which may be left out.
func trimmedBracket(word string) string {
	if strings.HasPrefix(word, "[") {
		return "]"
	}
	return ""
}

// filePaths returns the files of a thread.
func (p *plugin) filePaths(ctx context.Context, args []string) ([]string, error) {
	return ofThread(p, args, func(t *runtimeclient.Thread) ([]runtimev1.FileRecord, error) {
		list, err := t.Files(ctx, runtimeclient.FileOptions{Page: runtimeclient.Page{Limit: maxCandidates}, Prefix: "/", Recursive: true})
		if err != nil {
			return nil, err
		}
		return list.Files, nil
	}, func(f *runtimev1.FileRecord) string { return safe(f.Path) })
}

// threadKeys returns the keys of a thread's key-values.
func (p *plugin) threadKeys(ctx context.Context, args []string) ([]string, error) {
	return ofThread(p, args, func(t *runtimeclient.Thread) ([]string, error) {
		list, err := threadValues{t}.keys(ctx, runtimeclient.KeyOptions{Limit: maxCandidates})
		if err != nil {
			return nil, err
		}
		return list.Keys, nil
	}, func(key *string) string { return safe(*key) })
}

// storeKeys returns the keys of the store that the first argument names.
func (p *plugin) storeKeys(ctx context.Context, args []string) ([]string, error) {
	c, ns, err := p.client()
	if err != nil {
		return nil, err
	}
	list, err := storeValues{kv: c.KV(ns, args[0])}.keys(ctx, runtimeclient.KeyOptions{Limit: maxCandidates})
	if err != nil {
		return nil, err
	}
	return list.Keys, nil
}

// stateKeys returns the keys of a thread's state.
func (p *plugin) stateKeys(ctx context.Context, args []string) ([]string, error) {
	return ofThread(p, args, func(t *runtimeclient.Thread) ([]runtimev1.StateEntry, error) {
		list, err := t.State(ctx, runtimeclient.Page{Limit: maxCandidates})
		if err != nil {
			return nil, err
		}
		return list.Entries, nil
	}, func(e *runtimev1.StateEntry) string { return safe(e.Key) })
}

// variables returns the variables that a thread sees, with a text behind each.
func (p *plugin) variables(behind string) candidates {
	return func(ctx context.Context, args []string) ([]string, error) {
		names, err := ofThread(p, args, func(t *runtimeclient.Thread) ([]runtimev1.EnvVar, error) {
			list, err := t.ListEnvOf(ctx, "", runtimeclient.Page{Limit: maxCandidates})
			if err != nil {
				return nil, err
			}
			return list.Variables, nil
		}, func(v *runtimev1.EnvVar) string { return v.Name + behind })
		slices.Sort(names)
		return slices.Compact(names), err
	}
}

// wantedVariables returns the variables that a thread waits for.
func (p *plugin) wantedVariables(ctx context.Context, args []string) ([]string, error) {
	return ofThread(p, args, func(t *runtimeclient.Thread) ([]runtimev1.EnvWanted, error) {
		pending, err := t.PendingEnv(ctx)
		if err != nil {
			return nil, err
		}
		return pending.Variables, nil
	}, func(v *runtimev1.EnvWanted) string { return v.Name + "\t" + safe(v.Description) })
}

// skillNames returns the active skills of a thread, and nothing of those that could be activated: the thread's record does
// not have them.
func (p *plugin) skillNames(ctx context.Context, args []string) ([]string, error) {
	return ofThread(p, args, func(t *runtimeclient.Thread) ([]runtimev1.SkillActivation, error) {
		record, err := t.Get(ctx)
		if err != nil {
			return nil, err
		}
		return record.ActivatedSkills, nil
	}, func(s *runtimev1.SkillActivation) string { return safe(s.Name) })
}

// orphanIDs returns the conversations whose object is gone.
func (p *plugin) orphanIDs(ctx context.Context, _ []string) ([]string, error) {
	c, ns, err := p.client()
	if err != nil {
		return nil, err
	}
	all, err := orphans(ctx, c, ns)
	if err != nil {
		return nil, err
	}
	return namesOf(all, func(t *runtimev1.ThreadRecord) string { return t.ThreadID + "\t" + safe(t.ObjectMeta.Name) }), nil
}

// deliveryIDs returns the deliveries that were given up, which are those that one sends again.
func (p *plugin) deliveryIDs(ctx context.Context, _ []string) ([]string, error) {
	c, ns, err := p.client()
	if err != nil {
		return nil, err
	}
	list, err := c.WebhookDeliveries(ctx, ns, runtimeclient.DeliveryPage{Status: runtimev1.DeliveryDead, Limit: 100})
	if err != nil {
		return nil, err
	}
	return namesOf(list.Deliveries, func(d *runtimev1.WebhookDelivery) string { return d.ID + "\t" + safe(d.Webhook+" "+d.Event) }), nil
}
