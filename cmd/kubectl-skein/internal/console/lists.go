package console

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// The kinds of lists.
const (
	kindThreads = "threads"
	kindEffects = "effects"
)

// defaultRetry is how long lists wait after errors. It is short enough for a person who waits.
var defaultRetry = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 5, Cap: 10 * time.Second}

// lists holds the lists of the namespaces that pages show. Pages that show the same namespace share its lists, since they have the same
// rights.
type lists struct {
	server *Server
	retry  wait.Backoff

	mu   sync.Mutex
	ctx  context.Context //nolint:containedctx // that of Serve, which lists outlive requests in
	open map[string]*list
}

// list has the rows of one namespace, or of all.
type list struct {
	threads, effects *feed
	titles           *titles
	pages            int // that show it
	stop             context.CancelFunc
}

func newLists(s *Server) *lists {
	l := &lists{server: s, retry: defaultRetry, ctx: context.Background(), open: map[string]*list{}}
	if s.options.Retry != nil {
		l.retry = *s.options.Retry
	}
	return l
}

// start says when all lists end.
func (l *lists) start(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ctx = ctx
}

// show returns the lists of a namespace. leave has to be called once.
func (l *lists) show(namespace string) (shown *list, leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	shown = l.open[namespace]
	if shown == nil {
		shown = l.follow(namespace)
		l.open[namespace] = shown
	}
	shown.pages++
	return shown, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if shown.pages--; shown.pages == 0 {
			shown.stop()
			delete(l.open, namespace)
		}
	}
}

// follow begins to follow the objects of a namespace.
func (l *lists) follow(namespace string) *list {
	ctx, stop := context.WithCancel(l.ctx)
	t := newTitles()
	shown := &list{titles: t, stop: stop, effects: newFeed(kindEffects, nil), threads: newFeed(kindThreads, t.decorate)}
	t.threads = shown.threads
	o := &l.server.options
	l.reflect(ctx, shown.threads, namespace, "threads", &skeinv1.ThreadList{}, func(obj runtime.Object) any {
		if t, ok := obj.(*skeinv1.Thread); ok {
			return o.Thread(t)
		}
		return nil
	})
	l.reflect(ctx, shown.effects, namespace, "scheduledeffects", &skeinv1.ScheduledEffectList{}, func(obj runtime.Object) any {
		if e, ok := obj.(*skeinv1.ScheduledEffect); ok {
			return o.Effect(e)
		}
		return nil
	})
	go t.follow(ctx, l.server.history, namespace, l.retry)
	return shown
}

// reflect follows the objects of a resource in the background. It ends with ctx.
func (l *lists) reflect(ctx context.Context, to *feed, namespace, resource string, empty runtime.Object, row func(runtime.Object) any) {
	logger := klog.FromContext(ctx)
	backoff := l.retry
	r := cache.NewReflectorWithOptions(&source{
		objects: l.server.objects, feed: to, explain: l.server.explain, namespace: namespace, resource: resource, empty: empty, row: row,
	}, &item{}, to, cache.ReflectorOptions{Logger: &logger, Name: "console", TypeDescription: resource, Backoff: &backoff})
	r.WatchListPageSize = pageSize // so that no more whole objects are in memory than a page has
	go r.RunWithContext(ctx)
}

// item is what is kept of an object.
type item struct {
	metav1.TypeMeta
	metav1.ObjectMeta // the names and the resource version only
	row               any
}

// DeepCopyObject implements runtime.Object. Nothing changes an item.
func (i *item) DeepCopyObject() runtime.Object { return i }

func (i *item) key() string { return i.Namespace + "/" + i.Name }

// source reads the objects of a resource, and trims each to its row as soon as it is decoded.
type source struct {
	objects             *objects
	feed                *feed
	explain             func(error) *metav1.Status
	namespace, resource string
	empty               runtime.Object
	row                 func(runtime.Object) any
}

// IsWatchListSemanticsUnSupported makes the reflector list before it watches. A list that is streamed by a watch cannot be interrupted while
// it waits after an error.
func (s *source) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.ListerWatcher.
func (s *source) List(o metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), o)
}

// Watch implements cache.ListerWatcher.
func (s *source) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), o)
}

// ListWithContext implements cache.ListerWatcherWithContext.
func (s *source) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if o.ResourceVersion == "0" {
		o.ResourceVersion = "" // with 0 the API server answers from its cache, and ignores the limit
	}
	page := s.empty.DeepCopyObject()
	err := s.objects.skein.Get().Namespace(s.namespace).Resource(s.resource).SpecificallyVersionedParams(&o, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"}).
		Do(ctx).Into(page)
	if err != nil {
		return nil, s.told(ctx, err)
	}
	about, err := meta.ListAccessor(page)
	if err != nil {
		return nil, err
	}
	trimmed := &metainternal.List{ListMeta: metav1.ListMeta{ResourceVersion: about.GetResourceVersion(), Continue: about.GetContinue()}}
	err = meta.EachListItem(page, func(obj runtime.Object) error {
		i, err := s.trim(obj)
		if err == nil {
			trimmed.Items = append(trimmed.Items, i)
		}
		return err
	})
	return trimmed, err
}

// WatchWithContext implements cache.ListerWatcherWithContext.
func (s *source) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	w, err := s.objects.skein.Get().Namespace(s.namespace).Resource(s.resource).SpecificallyVersionedParams(&o, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"}).
		Watch(ctx)
	if err != nil {
		return nil, s.told(ctx, err)
	}
	s.feed.recovered()
	return newTrimmedWatch(w, s.trim), nil
}

// trimmedWatch is a watch whose events have what is kept of the objects. Unlike watch.Filter it ends when it is stopped, also while an event waits to be
// taken.
type trimmedWatch struct {
	from    watch.Interface
	results chan watch.Event
	stopped chan struct{}
	stop    sync.Once
}

func newTrimmedWatch(from watch.Interface, trim func(runtime.Object) (*item, error)) *trimmedWatch {
	w := &trimmedWatch{from: from, results: make(chan watch.Event), stopped: make(chan struct{})}
	go w.run(trim)
	return w
}

func (w *trimmedWatch) run(trim func(runtime.Object) (*item, error)) {
	defer close(w.results)
	for e := range w.from.ResultChan() {
		if e.Type != watch.Error { // which has a Status
			i, err := trim(e.Object)
			if err != nil {
				continue
			}
			e.Object = i
		}
		select {
		case w.results <- e:
		case <-w.stopped:
			return
		}
	}
}

// Stop implements watch.Interface.
func (w *trimmedWatch) Stop() {
	w.stop.Do(func() {
		close(w.stopped)
		w.from.Stop()
	})
}

// ResultChan implements watch.Interface.
func (w *trimmedWatch) ResultChan() <-chan watch.Event { return w.results }

// trim returns what is kept of an object.
func (s *source) trim(obj runtime.Object) (*item, error) {
	about, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	return &item{
		ObjectMeta: metav1.ObjectMeta{Namespace: about.GetNamespace(), Name: about.GetName(), ResourceVersion: about.GetResourceVersion(), Annotations: initialEvents(about)},
		row:        s.row(obj),
	}, nil
}

// initialEvents returns the annotation by which a bookmark ends a list, which the reflector looks at.
func initialEvents(about metav1.Object) map[string]string {
	if v, there := about.GetAnnotations()[metav1.InitialEventsAnnotationKey]; there {
		return map[string]string{metav1.InitialEventsAnnotationKey: v}
	}
	return nil
}

// told tells the pages of an error, unless a new list resolves it.
func (s *source) told(ctx context.Context, err error) error {
	if ctx.Err() == nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		status := s.explain(err)
		withdrawn := apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
		s.feed.fail(&problem{Reason: string(status.Reason), Message: status.Message, withdrawn: withdrawn})
	}
	return err
}
