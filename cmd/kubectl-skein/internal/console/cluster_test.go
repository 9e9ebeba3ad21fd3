package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

const (
	threadsPath = "/apis/skein.dev/v1alpha1/namespaces/demo/threads"
	effectsPath = "/apis/skein.dev/v1alpha1/namespaces/demo/scheduledeffects"
	historyPath = "/apis/runtime.skein.dev/v1alpha1/namespaces/demo/history"
)

// object is an object of the API as JSON.
type object map[string]any

// cluster is an API server that lists and watches Threads and ScheduledEffects, with a log of changes as etcd has one.
type cluster struct {
	*httptest.Server

	mu      sync.Mutex
	version int
	objects map[string]map[string]object // by path and name
	log     []change
	oldest  int           // the version that a watch may begin with
	moved   chan struct{} // closed at the next change
	broken  chan struct{} // closed to end watches
	watches int           // that are open
	begun   int           // watches that were opened
	lists   int           // that were made
	refusal func(r *http.Request) *metav1.Status
	listed  func(path string) // called after a list was made, before it is sent
	history []runtimev1.ThreadHistory
	told    chan runtimev1.ThreadHistory
	other   http.HandlerFunc
}

type change struct {
	version int
	path    string
	Type    string `json:"type"`
	Object  any    `json:"object"`
}

func startCluster() *cluster {
	c := &cluster{version: 1, objects: map[string]map[string]object{}, moved: make(chan struct{}), broken: make(chan struct{}), told: make(chan runtimev1.ThreadHistory, 10)}
	c.Server = httptest.NewUnstartedServer(c)
	c.EnableHTTP2 = true
	c.StartTLS()
	DeferCleanup(func() {
		c.breakWatches()
		c.CloseClientConnections()
		c.Close()
	})
	return c
}

// put creates or changes an object.
func (c *cluster) put(path, name string, fields object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := "ADDED"
	if c.objects[path] == nil {
		c.objects[path] = map[string]object{}
	}
	if c.objects[path][name] != nil {
		kind = "MODIFIED"
	}
	c.version++
	o := object{"metadata": map[string]any{"name": name, "namespace": "demo", "uid": "uid-" + name, "resourceVersion": strconv.Itoa(c.version)}}
	for k, v := range fields {
		o[k] = v
	}
	c.objects[path][name] = typed(path, o)
	c.record(change{c.version, path, kind, c.objects[path][name]})
}

func typed(path string, o object) object {
	o["apiVersion"], o["kind"] = "skein.dev/v1alpha1", "Thread"
	if strings.HasSuffix(path, "effects") {
		o["kind"] = "ScheduledEffect"
	}
	return o
}

func (c *cluster) remove(path, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.objects[path][name]
	delete(c.objects[path], name)
	c.version++
	o["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(c.version)
	c.record(change{c.version, path, "DELETED", o})
}

func (c *cluster) record(e change) {
	c.log = append(c.log, e)
	close(c.moved)
	c.moved = make(chan struct{})
}

// expire forgets the log, so that watches end as they do after a compaction, and those from an earlier version fail.
func (c *cluster) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	c.oldest, c.log = c.version, nil
	close(c.broken)
	c.broken = make(chan struct{})
}

func (c *cluster) breakWatches() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.broken)
	c.broken = make(chan struct{})
}

// refuse makes requests fail.
func (c *cluster) refuse(f func(r *http.Request) *metav1.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refusal = f
}

// handle answers requests for other paths.
func (c *cluster) handle(f http.HandlerFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.other = f
}

func (c *cluster) watching() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.watches
}

func (c *cluster) watched() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun
}

func (c *cluster) listings() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lists
}

// ServeHTTP implements http.Handler.
func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	refusal, other := c.refusal, c.other
	c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if refusal != nil {
		if s := refusal(r); s != nil {
			status(w, s)
			return
		}
	}
	watch := r.URL.Query().Get("watch") == "true"
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/history") && watch:
		c.watchHistory(w, r)
	case strings.HasSuffix(path, "/history"):
		c.mu.Lock()
		defer c.mu.Unlock()
		_ = json.NewEncoder(w).Encode(runtimev1.ThreadHistoryList{Items: c.history})
	case strings.HasPrefix(path, "/apis/skein.dev/") && watch:
		c.watch(w, r)
	case strings.HasPrefix(path, "/apis/skein.dev/"):
		c.list(w, r)
	case other != nil:
		other(w, r)
	default:
		status(w, &metav1.Status{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: "not here"})
	}
}

func status(w http.ResponseWriter, s *metav1.Status) {
	s.TypeMeta, s.Status = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, metav1.StatusFailure
	w.WriteHeader(int(s.Code))
	_ = json.NewEncoder(w).Encode(s)
}

// list answers with a page, which begins after the name in continue.
func (c *cluster) list(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	names := make([]string, 0, len(c.objects[r.URL.Path]))
	for name := range c.objects[r.URL.Path] {
		names = append(names, name)
	}
	slices.Sort(names)
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	after := r.URL.Query().Get("continue")
	if after == "" {
		c.lists++
	}
	i, _ := slices.BinarySearch(names, after+"\x00")
	if after == "" {
		i = 0
	}
	names = names[i:]
	about := map[string]any{"resourceVersion": strconv.Itoa(c.version)}
	if limit > 0 && len(names) > limit {
		names = names[:limit]
		about["continue"] = names[limit-1]
	}
	items := make([]object, len(names))
	for i, name := range names {
		items[i] = c.objects[r.URL.Path][name]
	}
	body, _ := json.Marshal(object{"apiVersion": "skein.dev/v1alpha1", "kind": typed(r.URL.Path, object{})["kind"].(string) + "List", "metadata": about, "items": items})
	listed := c.listed
	c.mu.Unlock()
	if listed != nil {
		listed(r.URL.Path)
	}
	_, _ = w.Write(body)
}

func (c *cluster) watch(w http.ResponseWriter, r *http.Request) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	c.mu.Lock()
	c.watches++
	c.begun++
	broken, oldest := c.broken, c.oldest
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.watches--
	}()
	gone := &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old",
	}
	if from < oldest {
		status(w, gone)
		return
	}
	flush := http.NewResponseController(w)
	_ = flush.Flush()
	for {
		c.mu.Lock()
		moved, expired := c.moved, from < c.oldest
		var send []change
		for _, e := range c.log {
			if e.version > from && e.path == r.URL.Path {
				send = append(send, e)
			}
		}
		from = max(from, c.version)
		body, _ := json.Marshal(change{Type: "ERROR", Object: gone})
		if !expired {
			body = nil
			for _, e := range send {
				one, _ := json.Marshal(e)
				body = append(append(body, one...), '\n')
			}
		}
		c.mu.Unlock()
		if _, err := w.Write(body); err != nil || expired || flush.Flush() != nil {
			return
		}
		select {
		case <-moved:
		case <-broken:
			c.mu.Lock()
			expired := c.oldest > oldest
			c.mu.Unlock()
			if !expired {
				return
			}
			body, _ := json.Marshal(change{Type: "ERROR", Object: gone})
			_, _ = w.Write(body)
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (c *cluster) watchHistory(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	_ = flush.Flush()
	c.mu.Lock()
	broken := c.broken
	c.mu.Unlock()
	for {
		select {
		case h := <-c.told:
			body, _ := json.Marshal(runtimev1.ThreadHistoryList{Items: []runtimev1.ThreadHistory{h}})
			fmt.Fprintf(w, "event: %s\ndata: %s\n\n", runtimev1.HistoryChangedEvent, body)
			_ = flush.Flush()
		case <-broken:
			return
		case <-r.Context().Done():
			return
		}
	}
}
