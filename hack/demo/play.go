package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

const (
	orders   = "hack/demo/orders.csv"
	question = "What do the orders in /orders.csv come to?"
)

// patience returns how long to wait for an answer: a script answers at once, a real model takes longer.
func (d *demo) patience() time.Duration {
	if d.model != nil {
		return 10 * time.Minute
	}
	return 2 * time.Minute
}

// declareAgents applies the samples in a namespace that enforces the restricted Pod Security Standard.
func (d *demo) declareAgents(ctx context.Context) error {
	d.say("3. An analyst and an auditor, declared")
	for _, args := range [][]string{
		{"kubectl", "apply", "-f", "config/samples/namespace.yaml"},
		{"kubectl", "apply", "-n", namespace, "-k", "config/samples"},
	} {
		if err := d.run(ctx, args...); err != nil {
			return err
		}
	}
	if d.model != nil {
		manifests, err := d.model.manifests()
		if err != nil {
			return err
		}
		fmt.Printf("The models are %s at %s instead of the scripts.\n", d.model.id, d.model.baseURL)
		// It may have a private address, which the Namespace has to open.
		if err := d.run(ctx, "kubectl", "annotate", "--overwrite", "namespace", namespace, "skein.dev/tool-private-hosts="+d.model.host()); err != nil {
			return err
		}
		d.show("kubectl", "apply", "-n", namespace, "-f", "-")
		if err := d.quietly(ctx, strings.NewReader(manifests), os.Stdout, "kubectl", "apply", "-n", namespace, "-f", "-"); err != nil {
			return err
		}
	}
	return d.run(ctx, "kubectl", "wait", "-n", namespace, "--for=condition=Ready", "--timeout=120s",
		"agents,prompts,models,tools,effects,sandboxpools,threads", "--all")
}

// handOverOrders copies the file into the thread.
func (d *demo) handOverOrders(ctx context.Context) error {
	total, count, err := sumOrders(orders)
	if err != nil {
		return err
	}
	d.total = total
	d.say("4. A file of %d orders for the conversation", count)
	if err := d.run(ctx, "kubectl", "skein", "files", "cp", "-n", namespace, orders, threadName+":/orders.csv"); err != nil {
		return err
	}
	return d.run(ctx, "kubectl", "skein", "files", "ls", "-n", namespace, threadName)
}

// ask sends the question and shows the conversation as it happens.
func (d *demo) ask(ctx context.Context) error {
	d.say("5. The question")
	began := time.Now()
	stop := d.watch(ctx)
	defer stop()
	if err := d.run(ctx, "kubectl", "skein", "send", "-n", namespace, threadName, question); err != nil {
		return err
	}
	t := &threadObject{}
	err := poll(ctx, d.patience(), 200*time.Millisecond, "the answer", func() (bool, error) {
		err := d.get(ctx, t)
		return err == nil && t.Status.LastRun.Outcome != "", err
	})
	if err != nil {
		return err
	}
	stop()
	if t.Status.LastRun.Outcome != "Succeeded" {
		return fmt.Errorf("the run ended as %s: %s: %s", t.Status.LastRun.Outcome, t.Status.LastRun.Reason, t.Status.LastRun.Message)
	}
	fmt.Printf("(answered after %s)\n", seconds(time.Since(began)))
	return nil
}

// watch shows the conversation live until stop is called.
func (d *demo) watch(ctx context.Context) (stop func()) {
	args := []string{"kubectl", "skein", "watch", "-n", namespace, threadName}
	d.show(append(args, "&")...)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The command ends when it is stopped. If it failed, the missing transcript would show it.
		_ = d.quietly(ctx, nil, os.Stdout, args...)
	}()
	return func() { cancel(); <-done }
}

func (d *demo) showObjects(ctx context.Context) error {
	d.say("6. What it made: the auditor's thread, a pending effect, a pod for each thread's code")
	if err := d.run(ctx, "kubectl", "get", "-n", namespace, "threads,subagents,scheduledeffects,pods"); err != nil {
		return err
	}
	return d.run(ctx, "kubectl", "skein", "tree", "-n", namespace, threadName)
}

// checkAnswer compares the agent's answer with the sum that the demo computed itself.
func (d *demo) checkAnswer(ctx context.Context) error {
	ms, err := d.messages(ctx)
	if err != nil {
		return err
	}
	var answer string
	used := map[string]bool{}
	for _, m := range ms {
		switch {
		case m.Role == "assistant" && m.text() != "":
			answer = m.text()
		case m.Role == "tool":
			used[m.Name] = true
		}
	}
	d.say("7. Is it right?")
	fmt.Printf("The demo program adds up the file itself: %s\n", d.total)
	if !contains(answer, d.total) {
		return fmt.Errorf("the answer does not contain the total %s:\n%s", d.total, answer)
	}
	fmt.Println("The answer contains it.")
	for _, tool := range []string{"order_totals", "run_code", "subagent_create", "schedule_effect"} {
		if !used[tool] {
			return fmt.Errorf("the agent did not call %s", tool)
		}
	}
	return nil
}

// awaitReminder waits for the message that the effect queues, and for the agent's reply.
func (d *demo) awaitReminder(ctx context.Context) error {
	d.say("8. The reminder, three seconds after it was scheduled")
	var reminder, reply string
	err := poll(ctx, d.patience(), 200*time.Millisecond, "the reminder", func() (bool, error) {
		ms, err := d.messages(ctx)
		reminder, reply = "", ""
		for _, m := range ms {
			switch {
			case m.Role == "user" && strings.HasPrefix(m.text(), "Reminder:"):
				reminder = m.text()
			case m.Role == "assistant" && reminder != "" && m.text() != "":
				reply = m.text()
			}
		}
		return reply != "", err
	})
	if err != nil {
		return err
	}
	fmt.Printf("effect:  %s\nanalyst: %s\n", reminder, reply)
	return d.run(ctx, "kubectl", "skein", "messages", "-n", namespace, threadName, "--limit=2")
}

// deleteTree deletes the thread and shows that everything that it created is deleted too.
func (d *demo) deleteTree(ctx context.Context) error {
	d.say("9. Deleting the thread takes the whole tree with it")
	began := time.Now()
	if err := d.run(ctx, "kubectl", "delete", "thread", "-n", namespace, threadName); err != nil {
		return err
	}
	var left string
	err := poll(ctx, time.Minute, 100*time.Millisecond, "the tree is gone", func() (bool, error) {
		var err error
		left, err = d.output(ctx, "kubectl", "get", "thread", "-n", namespace, threadName, "--ignore-not-found", "-o", "name")
		if err != nil {
			return false, err
		}
		// The runtime created these objects for the thread. Other threads of the samples stay.
		made, err := d.output(ctx, "kubectl", "get", "-n", namespace, "-o", "name", "-l", "app.kubernetes.io/managed-by=skein", "threads,subagents,scheduledeffects")
		if err != nil {
			return false, err
		}
		left += made
		// Warm sandboxes belong to the pool, claimed ones to threads.
		pods, err := d.output(ctx, "kubectl", "get", "-n", namespace, "-o", "name", "pods", "-l", "skein.dev/sandbox-state=claimed")
		left += pods
		return err == nil && strings.TrimSpace(left) == "", err
	})
	if err != nil {
		return fmt.Errorf("%w; still there: %s", err, strings.ReplaceAll(strings.TrimSpace(left), "\n", ", "))
	}
	fmt.Printf("(all of it gone after %s)\n", seconds(time.Since(began)))
	return d.run(ctx, "kubectl", "get", "-n", namespace, "threads,subagents,scheduledeffects,pods")
}

// threadObject is the part of the Thread that the demo reads.
type threadObject struct {
	Status struct {
		LastRun struct {
			Outcome string `json:"outcome"`
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"lastRun"`
	} `json:"status"`
}

func (d *demo) get(ctx context.Context, t *threadObject) error {
	out, err := d.output(ctx, "kubectl", "get", "thread", "-n", namespace, threadName, "-o", "json")
	if err != nil {
		return err
	}
	*t = threadObject{}
	return json.Unmarshal([]byte(out), t)
}

// message is the part of a message that the demo reads.
type message struct {
	Role    string  `json:"role"`
	Name    string  `json:"name"`
	Content *string `json:"content"`
}

func (m message) text() string {
	if m.Content == nil {
		return ""
	}
	return strings.TrimSpace(*m.Content)
}

func (d *demo) messages(ctx context.Context) ([]message, error) {
	out, err := d.output(ctx, "kubectl", "skein", "messages", "-n", namespace, threadName, "-o", "json")
	if err != nil {
		return nil, err
	}
	var list struct {
		Messages []message `json:"messages"`
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return nil, fmt.Errorf("read the messages: %w", err)
	}
	return list.Messages, nil
}
