package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/effectplan"
	"github.com/skein-dev/skein/internal/model/providers/scripted"
)

func TestSumOrders(t *testing.T) {
	file := filepath.Join(t.TempDir(), "orders.csv")
	rows := "order_id,quantity,unit_price,status\n1,3,0.10,paid\n2,1,7,paid\n3,9,9.99,cancelled\n4,2,1.5,paid\n"
	if err := os.WriteFile(file, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	if total, n, err := sumOrders(file); err != nil || total != "10.30" || n != 4 {
		t.Errorf("%s of %d orders, %v", total, n, err)
	}
	if err := os.WriteFile(file, []byte("a,b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := sumOrders(file); err == nil || !strings.Contains(err.Error(), "no column quantity") {
		t.Errorf("a wrong file was taken: %v", err)
	}
}

func TestContains(t *testing.T) {
	for text, want := range map[string]bool{
		"in all 1122145.52": true, "**1,122,145.52** EUR": true, "1\u202f122\u202f145.52": true,
		"1122145.53": false, "1122145": false, "": false,
	} {
		if contains(text, "1122145.52") != want {
			t.Errorf("%q: %t", text, !want)
		}
	}
}

func TestModelFromEnv(t *testing.T) {
	from := func(pairs ...string) func(string) string {
		return func(name string) string {
			for i := 0; i < len(pairs); i += 2 {
				if pairs[i] == name {
					return pairs[i+1]
				}
			}
			return ""
		}
	}
	if m, err := modelFromEnv(from()); m != nil || err != nil {
		t.Errorf("%v, %v", m, err)
	}
	for _, wrong := range [][]string{{"MODEL", "m"}, {"MODEL_API_KEY", "k"}, {"MODEL_BASE_URL", "http://x/v1"}, {"MODEL_BASE_URL", "x", "MODEL", "m"}} {
		if _, err := modelFromEnv(from(wrong...)); err == nil || !strings.Contains(err.Error(), "MODEL") {
			t.Errorf("%v was taken: %v", wrong, err)
		}
	}
	for url, want := range map[string]bool{"http://127.0.0.1:8000/v1": true, "http://localhost/v1": true, "http://[::1]:80": true, "https://api.example.com/v1": false} {
		m, err := modelFromEnv(from("MODEL_BASE_URL", url, "MODEL", "m"))
		if err != nil || m.onLoopback() != want {
			t.Errorf("%s: %v, %v", url, m, err)
		}
	}
}

// The real models replace the samples' models, so the manifests must name the same objects, and the key must be in
// the Secret and nowhere else.
func TestRealModelManifests(t *testing.T) {
	m := &realModel{baseURL: "https://api.example.com/v1", id: "big-1", key: "sk-canary"}
	text, err := m.manifests()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(text, "sk-canary") != 1 {
		t.Errorf("the key is not in one place:\n%s", text)
	}
	var list struct{ Items []map[string]any }
	if err := yaml.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	for _, item := range list.Items {
		b, _ := yaml.Marshal(item)
		if item["kind"] == "Secret" {
			if err := yaml.UnmarshalStrict(b, &corev1.Secret{}); err != nil {
				t.Error(err)
			}
			continue
		}
		var got skeinv1.Model
		if err := yaml.UnmarshalStrict(b, &got); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat("../../config/samples/model-" + got.Name + ".yaml"); err != nil {
			t.Errorf("the samples have no model %s: %v", got.Name, err)
		}
	}
}

// Every sample matches its kind's Go type, every name in it exists, and the scripts can be played.
func TestSamples(t *testing.T) {
	objects := map[string]map[string]bool{}
	var agents []skeinv1.Agent
	var prompts []skeinv1.Prompt
	var threads []skeinv1.Thread
	var endpoints []skeinv1.ThreadEndpoint
	var secrets []corev1.SecretKeySelector
	keys := map[string]map[string]string{}
	read := map[string]func(b []byte) (string, error){
		"Agent": func(b []byte) (string, error) {
			var o skeinv1.Agent
			err := yaml.UnmarshalStrict(b, &o)
			agents = append(agents, o)
			return o.Name, err
		},
		"Prompt": func(b []byte) (string, error) {
			var o skeinv1.Prompt
			err := yaml.UnmarshalStrict(b, &o)
			prompts = append(prompts, o)
			return o.Name, err
		},
		"Thread": func(b []byte) (string, error) {
			var o skeinv1.Thread
			err := yaml.UnmarshalStrict(b, &o)
			threads = append(threads, o)
			return o.Name, err
		},
		"Model": func(b []byte) (string, error) {
			var o skeinv1.Model
			if err := yaml.UnmarshalStrict(b, &o); err != nil {
				return "", err
			}
			if o.Spec.Credentials != nil {
				secrets = append(secrets, o.Spec.Credentials.SecretKeyRef)
			}
			if o.Spec.Script == nil {
				return o.Name, nil
			}
			return o.Name, scripted.Validate(o.Spec.Script.Steps)
		},
		"Tool": func(b []byte) (string, error) {
			var o skeinv1.Tool
			err := yaml.UnmarshalStrict(b, &o)
			if o.Spec.MCP != nil && o.Spec.MCP.Auth != nil && o.Spec.MCP.Auth.Bearer != nil {
				secrets = append(secrets, o.Spec.MCP.Auth.Bearer.SecretKeyRef)
			}
			return o.Name, err
		},
		"Effect": func(b []byte) (string, error) {
			var o skeinv1.Effect
			err := yaml.UnmarshalStrict(b, &o)
			return o.Name, err
		},
		"Subagent": func(b []byte) (string, error) {
			var o skeinv1.Subagent
			err := yaml.UnmarshalStrict(b, &o)
			return o.Name, err
		},
		"ScheduledEffect": func(b []byte) (string, error) {
			var o skeinv1.ScheduledEffect
			if err := yaml.UnmarshalStrict(b, &o); err != nil {
				return "", err
			}
			if o.Undecodable != "" {
				return "", errors.New(o.Undecodable)
			}
			_, err := effectplan.Of(&o.Spec, time.Time{})
			return o.Name, err
		},
		"SandboxPool": func(b []byte) (string, error) {
			var o skeinv1.SandboxPool
			err := yaml.UnmarshalStrict(b, &o)
			return o.Name, err
		},
		"ThreadEndpoint": func(b []byte) (string, error) {
			var o skeinv1.ThreadEndpoint
			err := yaml.UnmarshalStrict(b, &o)
			endpoints = append(endpoints, o)
			return o.Name, err
		},
		"Webhook": func(b []byte) (string, error) {
			var o skeinv1.Webhook
			err := yaml.UnmarshalStrict(b, &o)
			return o.Name, err
		},
		"WebhookReceiver": func(b []byte) (string, error) {
			var o skeinv1.WebhookReceiver
			err := yaml.UnmarshalStrict(b, &o)
			return o.Name, err
		},
		"ThreadGateway": func(b []byte) (string, error) {
			var o skeinv1.ThreadGateway
			err := yaml.UnmarshalStrict(b, &o)
			return o.Name, err
		},
		"ConfigMap": func(b []byte) (string, error) {
			var o corev1.ConfigMap
			err := yaml.UnmarshalStrict(b, &o)
			return o.Name, err
		},
		"Secret": func(b []byte) (string, error) {
			var o corev1.Secret
			err := yaml.UnmarshalStrict(b, &o)
			keys[o.Name] = o.StringData
			return o.Name, err
		},
		"Namespace": func(b []byte) (string, error) {
			var o corev1.Namespace
			err := yaml.UnmarshalStrict(b, &o)
			return o.Name, err
		},
	}
	files, err := filepath.Glob("../../config/samples/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d samples: %v", len(files), err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(f) == "kustomization.yaml" {
			continue
		}
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			var kind struct{ Kind string }
			if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			if read[kind.Kind] == nil {
				t.Errorf("%s: a %q is not looked at", f, kind.Kind)
				continue
			}
			name, err := read[kind.Kind]([]byte(doc))
			if err != nil {
				t.Errorf("%s: %v", f, err)
			}
			if objects[kind.Kind] == nil {
				objects[kind.Kind] = map[string]bool{}
			}
			objects[kind.Kind][name] = true
		}
	}
	there := func(what, kind, name string) {
		if !objects[kind][name] {
			t.Errorf("%s names the %s %q, which no sample is", what, kind, name)
		}
	}
	for _, a := range agents {
		sides := []*skeinv1.AgentSide{&a.Spec.SideA}
		if a.Spec.SideB != nil {
			sides = append(sides, a.Spec.SideB)
		}
		for _, s := range sides {
			if s.Handler == nil {
				there(a.Name, "Prompt", s.PromptRef.Name)
				continue
			}
			for _, m := range s.Handler.Models {
				there(a.Name, "Model", m.ModelRef.Name)
			}
		}
		if a.Spec.Memory != nil {
			there(a.Name, "Model", a.Spec.Memory.EmbeddingModelRef.Name)
		}
		for _, s := range a.Spec.Subagents {
			there(a.Name, "Agent", s.AgentRef.Name)
		}
	}
	for _, p := range prompts {
		there(p.Name, "Model", p.Spec.ModelRef.Name)
		for _, part := range p.Spec.Parts {
			if part.Include != "" {
				there(p.Name, "Prompt", part.Include)
			}
		}
		for _, s := range p.Spec.Skills {
			if ref := s.Instructions.ConfigMapKeyRef; ref != nil {
				there(p.Name, "ConfigMap", ref.Name)
			}
		}
		for _, tool := range p.Spec.Tools {
			if tool.Name != "" {
				there(p.Name, "Tool", tool.Name)
			}
			if tool.Prompt != "" {
				there(p.Name, "Prompt", tool.Prompt)
			}
		}
	}
	for _, ref := range secrets {
		if value := keys[ref.Name][ref.Key]; !strings.HasPrefix(value, "put-your-") {
			t.Errorf("the Secret %s has %q under %s: say there that a key is to be put in, and put none in", ref.Name, value, ref.Key)
		}
	}
	for _, th := range threads {
		there(th.Name, "Agent", th.Spec.AgentRef.Name)
	}
	for _, e := range endpoints {
		if e.Spec.AgentRef != nil {
			there(e.Name, "Agent", e.Spec.AgentRef.Name)
		}
	}
}
