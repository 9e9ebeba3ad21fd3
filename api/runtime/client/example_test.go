package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math/big"
	"os"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/skein-dev/skein/api/runtime/client"
	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	"github.com/skein-dev/skein/api/runtime/values"
)

// The guide, docs/go-client.md, shows the bodies of these functions; a test holds the two together.

var (
	ctx    = context.Background()
	thread *client.Thread
)

func Example() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		log.Fatal(err)
	}
	c, err := client.New(config)
	if err != nil {
		log.Fatal(err)
	}
	thread := c.Thread("demo", "orders")
	if _, err := thread.Send(ctx, "And in March?"); err != nil {
		log.Fatal(err)
	}
}

func ExampleNewDirect() {
	c, err := client.NewDirect("https://skein-runtime-api.skein-system.svc", os.Getenv("TOKEN"), nil)
	if err != nil {
		log.Fatal(err)
	}
	info, err := c.Thread("demo", "T-6dd4bbc3-8ee7-4c3f-9a53-4e42a6d6bb37").Info(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.AgentID(), time.UnixMicro(info.CreatedAt()))
}

func ExampleThread_Events() {
	for event, err := range thread.Events(ctx, client.EventOptions{Latest: true}) {
		if err != nil {
			log.Fatal(err)
		}
		if event.Type == runtimev1.EventRunEnded {
			break
		}
	}
}

func ExampleThread_Observe() {
	for seen, err := range thread.Observe(ctx, client.ObserveOptions{}) {
		if err != nil {
			log.Fatal(err)
		}
		value, err := seen.Thread()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(seen.V, value.Thread.MessageCount, string(seen.Patch))
		if value.Thread.MessageCount > 0 {
			break
		}
	}
}

func ExampleThread_AllMessages() {
	for message, err := range thread.AllMessages(ctx, client.MessageOptions{}) {
		if err != nil {
			log.Fatal(err)
		}
		if message.Content != nil {
			fmt.Println(message.Role, *message.Content)
		}
	}
}

func ExampleError() {
	_, err := thread.Send(ctx, "One more thing")
	switch {
	case errors.Is(err, client.ErrQueueFull):
		// Wait until the thread has taken one.
	case errors.Is(err, client.ErrTerminated):
		// Make a new thread.
	case errors.Is(err, client.ErrUnavailable):
		// Try again later.
	case err != nil:
		log.Fatal(err)
	}
}

func ExampleThread_Once() {
	order := runtimev1.NewMessage{Content: "Order 4711 has arrived."}
	if _, err := thread.Once("order-4711").Queue(ctx, order); err != nil {
		log.Fatal(err) // sent again under the same key, it is queued once
	}
}

func ExampleThread_Holding() {
	lease, err := thread.Acquire(ctx, 30*time.Second)
	if errors.Is(err, client.ErrConflict) {
		return // another writer has it, or a run is under way
	}
	if err != nil {
		log.Fatal(err)
	}
	mine := thread.Holding(lease)
	if err := mine.SetValue(ctx, "imported", true); err != nil {
		log.Print(err) // ErrConflict: the lease has ended, and nothing was written
	}
	if err := mine.Release(ctx); err != nil {
		log.Print(err)
	}
}

func ExampleThread_InvokeTool() {
	result, err := thread.InvokeTool(ctx, "sum_column", map[string]any{"path": "/orders.csv"})
	switch {
	case err != nil:
		log.Fatal(err) // it was not called
	case result.Status == runtimev1.ToolError:
		fmt.Println("it failed:", result.Error)
	default:
		fmt.Println(result.Result)
	}
}

func ExampleThread_ScheduleEffect() {
	id, err := thread.ScheduleEffect(ctx, "remind", map[string]any{"to": "ada"}, 30*time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	if removed, err := thread.RemoveScheduledEffect(ctx, id); err == nil && removed {
		fmt.Println("cancelled")
	}
}

func ExampleThread_RunCode() {
	run := thread.RunCode(ctx, `export default (rows: number[]) => rows.reduce((a, b) => a + b, 0)`, client.CodeOptions{
		Args:     []any{[]int{1, 2, 3}},
		WallTime: 5 * time.Second,
	})
	defer run.Terminate("not needed any more")
	result, err := run.Wait(ctx)
	if err != nil {
		log.Fatal(err) // it did not run
	}
	fmt.Println(result.Status, string(result.Result))
}

func ExampleCodeOptions() {
	source := `const rows = await fetchRows('north', 3); report({ rows: rows.length }); export default (min: bigint) => new Set(rows.filter((r) => r.amount > min))`
	run := thread.RunCode(ctx, source, client.CodeOptions{
		Args: []any{big.NewInt(10)},
		Globals: map[string]any{
			"fetchRows": func(ctx context.Context, region string, limit int) ([]any, error) {
				return []any{map[string]any{"region": region, "amount": big.NewInt(12)}}, ctx.Err()
			},
		},
		Report: func(progress json.RawMessage) { fmt.Println(string(progress)) },
	})
	result, err := run.Wait(ctx)
	if err != nil {
		log.Fatal(err) // it did not run
	}
	if rows, ok := run.Value().(*values.Set); ok {
		fmt.Println(result.Status, len(rows.Members))
	}
}

func ExampleThread_SetValue() {
	if err := thread.SetValue(ctx, "preferences", map[string]string{"theme": "dark"}); err != nil {
		log.Fatal(err)
	}
	raw, err := thread.Value(ctx, "preferences")
	if err != nil {
		log.Fatal(err)
	}
	var preferences map[string]string
	if raw != nil { // nil: there is none
		err = json.Unmarshal(raw, &preferences)
	}
	fmt.Println(preferences, err)
}

func ExampleThread_ParentThread() {
	parent, err := thread.ParentThread(ctx)
	switch {
	case err != nil:
		log.Fatal(err)
	case parent == nil:
		fmt.Println("it has no parent")
	default:
		err = thread.NotifyParent(ctx, "halfway through the batch")
	}
	if err != nil {
		log.Fatal(err)
	}
}
