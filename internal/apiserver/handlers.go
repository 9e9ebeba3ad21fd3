package apiserver

import (
	"github.com/skein-dev/skein/internal/apiserver/access"
	"github.com/skein-dev/skein/internal/apiserver/approvals"
	"github.com/skein-dev/skein/internal/apiserver/backups"
	"github.com/skein-dev/skein/internal/apiserver/code"
	"github.com/skein-dev/skein/internal/apiserver/effects"
	"github.com/skein-dev/skein/internal/apiserver/endpoints"
	"github.com/skein-dev/skein/internal/apiserver/env"
	"github.com/skein-dev/skein/internal/apiserver/family"
	"github.com/skein-dev/skein/internal/apiserver/files"
	"github.com/skein-dev/skein/internal/apiserver/messages"
	"github.com/skein-dev/skein/internal/apiserver/runs"
	"github.com/skein-dev/skein/internal/apiserver/search"
	"github.com/skein-dev/skein/internal/apiserver/state"
	"github.com/skein-dev/skein/internal/apiserver/streams"
	"github.com/skein-dev/skein/internal/apiserver/threads"
	"github.com/skein-dev/skein/internal/apiserver/tools"
	"github.com/skein-dev/skein/internal/apiserver/webhooks"
	"github.com/skein-dev/skein/internal/thread"
)

// handlers holds a handler for each resource of the API.
type handlers struct {
	messages      *messages.Handler
	files         *files.Handler
	state         *state.Handler
	values        *state.Values
	kvStores      *state.Stores
	env           *env.Handler
	streams       *streams.Handler
	code          *code.Handler
	endpoints     *endpoints.Handler
	approvals     *approvals.Handler
	tools         *tools.Handler
	effects       *effects.Handler
	family        *family.Handler
	relationships *family.Relationships
	handoffs      *family.Handoffs
	forks         *family.Forks
	records       *threads.Records
	life          *threads.Life
	retained      *threads.Retained
	backups       *backups.Backups
	restores      *backups.Restores
	orphans       *backups.Orphans
	leases        *threads.Leases
	transfers     *threads.Transfers
	lookups       *threads.Lookups
	history       *threads.History
	flush         *threads.Flush
	webhooks      *webhooks.Handler
	runs          *runs.Handler
	searches      *search.Handler
}

// handlers gives each handler what it needs.
func (s *Server) handlers() *handlers {
	o := &s.opts
	reviews := &access.Reviews{Authorizer: s.authorizer, Threads: o.Threads}
	records := &threads.Records{Threads: o.Threads, Find: s.lookup}
	history := &threads.History{Threads: o.Threads, Find: s.lookup}
	return &handlers{
		records:   records,
		life:      &threads.Life{Engine: o.Engine, Records: records},
		retained:  &threads.Retained{Threads: o.Threads, Find: s.lookup},
		backups:   backups.NewBackups(o.Threads, o.transferTimeout),
		restores:  &backups.Restores{Threads: o.Threads, Live: o.live(), TransferTimeout: o.transferTimeout},
		orphans:   &backups.Orphans{Threads: o.Threads, Live: o.live()},
		leases:    &threads.Leases{Threads: o.Threads},
		transfers: &threads.Transfers{TransferTimeout: o.transferTimeout},
		lookups:   &threads.Lookups{Threads: o.Threads, Reader: o.Reader, Find: s.lookup, Access: reviews, Records: records},
		history:   history,
		runs:      &runs.Handler{Threads: o.Threads, Engine: o.Engine},

		messages: &messages.Handler{Engine: o.Engine, Access: reviews},
		searches: &search.Handler{Threads: o.Threads, Engine: o.Engine, Find: s.lookup, Access: reviews},
		files:    &files.Handler{TransferTimeout: o.transferTimeout},
		state:    &state.Handler{},
		values:   &state.Values{},
		kvStores: &state.Stores{Threads: o.Threads},
		env:      &env.Handler{Threads: o.Threads},
		streams: streams.New(o.Threads, records.Record, history.Items, o.Secrets, streams.Options{
			Heartbeat: o.heartbeat, SlowClient: o.slowClient, TransferTimeout: o.transferTimeout, Stopping: s.stopping, Shows: s.lookup.Shows,
		}),
		webhooks: webhooksOf(o.Threads),
		flush:    &threads.Flush{Threads: o.Threads, Wait: o.flushWait},

		code: &code.Handler{Engine: o.Engine, Access: reviews, Options: code.Options{
			Heartbeat: o.heartbeat, TransferTimeout: o.transferTimeout, Stopping: s.stopping,
		}},
		endpoints:     &endpoints.Handler{Engine: o.Engine, TransferTimeout: o.transferTimeout},
		tools:         &tools.Handler{Engine: o.Engine},
		approvals:     &approvals.Handler{Engine: o.Engine, Recorder: o.Recorder},
		effects:       &effects.Handler{Effects: o.Effects, Threads: o.Threads},
		family:        &family.Handler{Threads: o.Threads, Engine: o.Engine, Children: o.Children},
		relationships: &family.Relationships{Find: s.lookup, Access: reviews},
		handoffs:      &family.Handoffs{Engine: o.Engine, Access: reviews},
		forks:         &family.Forks{Threads: o.Threads, Find: s.lookup, Access: reviews, Objects: o.Objects},
	}
}

func webhooksOf(t *thread.Service) *webhooks.Handler {
	if t == nil { // where only the routes are of interest
		return &webhooks.Handler{}
	}
	return &webhooks.Handler{Store: t.Store()}
}
