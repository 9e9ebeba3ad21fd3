package storetest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/skein-dev/skein/internal/store"
)

// Ack is a write that the store has acknowledged.
type Ack struct {
	Thread  string `json:"t"`
	Message string `json:"m,omitempty"` // appended together with one whose id ends in "-twin"
	Key     string `json:"k,omitempty"` // of an inbox item
	Value   int64  `json:"v,omitempty"` // of the key-value "n"
}

const crashThreads = 8

// WriteUntilKilled makes random writes from many goroutines and says each on out once it is acknowledged.
// It ends with the process, or with an error.
func WriteUntilKilled(ctx context.Context, s store.Store, round string, seed uint64, out io.Writer) error {
	var mu sync.Mutex
	w := bufio.NewWriter(out)
	acknowledge := func(a Ack) error {
		mu.Lock()
		defer mu.Unlock()
		if err := json.NewEncoder(w).Encode(a); err != nil {
			return err
		}
		return w.Flush()
	}
	return together(crashThreads, func(i int) error {
		id := fmt.Sprint("crash-", i)
		if _, _, err := s.CreateThread(ctx, store.Thread{ID: id, Namespace: "n", Agent: "a"}); err != nil {
			return err
		}
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		for n := int64(1); ; n++ {
			a := Ack{Thread: id}
			name := fmt.Sprintf("%s-%d-%d", round, i, n)
			var ops []store.Op
			switch random.IntN(4) {
			case 0, 1:
				a.Message = name
				one, two := message(strings.Repeat("x", random.IntN(6000))), message("y")
				one.ID, two.ID = name, name+"-twin"
				ops = append(ops, &store.AppendMessage{Message: one}, &store.AppendMessage{Message: two})
			case 2:
				a.Key = name
				ops = append(ops, &store.Enqueue{Item: store.InboxItem{Key: name, Kind: store.InboxResume}})
			case 3:
				a.Value = valueOf(round, n)
				ops = append(ops, &store.PutValue{Key: "n", Value: json.RawMessage(fmt.Sprint(a.Value))})
			}
			if err := s.Apply(ctx, id, nil, ops...); err != nil {
				return err
			}
			if err := acknowledge(a); err != nil {
				return err
			}
		}
	})
}

// valueOf grows with the rounds and within each.
func valueOf(round string, n int64) int64 {
	var r int64
	_, _ = fmt.Sscan(round, &r)
	return r*1_000_000_000 + n
}

// CheckAcknowledged tells what is missing or torn of the writes that were acknowledged before a crash.
func CheckAcknowledged(ctx context.Context, s store.Store, acks []Ack) error {
	byThread := map[string][]Ack{}
	for _, a := range acks {
		byThread[a.Thread] = append(byThread[a.Thread], a)
	}
	for id, acked := range byThread {
		if err := checkThread(ctx, s, id, acked); err != nil {
			return fmt.Errorf("thread %s: %w", id, err)
		}
	}
	return nil
}

func checkThread(ctx context.Context, s store.Store, id string, acked []Ack) error {
	info, err := s.Thread(ctx, id)
	if err != nil {
		return err
	}
	page, err := s.Messages(ctx, id, store.MessageQuery{Order: "asc", Limit: 1_000_000})
	if err != nil {
		return err
	}
	have := map[string]bool{}
	for _, m := range page.Messages {
		have[m.ID] = true
	}
	if len(have) != len(page.Messages) || int64(len(have)) != info.Messages {
		return fmt.Errorf("%d messages, %d ids, %d counted", len(page.Messages), len(have), info.Messages)
	}
	for m := range have {
		if one := strings.TrimSuffix(m, "-twin"); !have[one] || !have[one+"-twin"] {
			return fmt.Errorf("message %s came without its twin", m)
		}
	}
	items, err := s.Inbox(ctx, id)
	if err != nil {
		return err
	}
	waiting := map[string]bool{}
	for _, item := range items {
		waiting[item.Key] = true
	}
	var value int64
	for _, a := range acked {
		if a.Message != "" && !have[a.Message] {
			return fmt.Errorf("the acknowledged message %s is lost", a.Message)
		}
		if a.Key != "" && !waiting[a.Key] {
			return fmt.Errorf("the acknowledged inbox item %s is lost", a.Key)
		}
		value = max(value, a.Value)
	}
	if value == 0 {
		return nil
	}
	data, err := s.Value(ctx, id, "n")
	if err != nil {
		return err
	}
	var stored int64
	if err := json.Unmarshal(data, &stored); err != nil || stored < value {
		return fmt.Errorf("the value is %s, older than the acknowledged %d: %w", data, value, err)
	}
	return nil
}
