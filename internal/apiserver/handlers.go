package apiserver

import (
	"github.com/skein-dev/skein/internal/apiserver/access"
)

// handlers holds a handler for each resource of the API.
type handlers struct {
	messages      *messageHandler
	files         *fileHandler
	state         *stateHandler
	values        *valueHandler
	kvStores      *kvStoreHandler
	env           *envHandler
	streams       *streamHandler
	code          *codeHandler
	endpoints     *endpointHandler
	approvals     *approvalHandler
	tools         *toolHandler
	effects       *effectHandler
	family        *familyHandler
	relationships *relationshipHandler
	records       *recordHandler
	life          *lifeHandler
	retained      *retainedHandler
	leases        *leaseHandler
	transfers     *transferHandler
	lookups       *lookupHandler
	history       *historyHandler
	runs          *runHandler
	searches      *searchHandler
}

// handlers gives each handler what it needs.
func (s *Server) handlers() *handlers {
	o := &s.opts
	reviews := &access.Reviews{Authorizer: s.authorizer, Threads: o.Threads}
	records := &recordHandler{threads: o.Threads, find: s.lookup}
	return &handlers{
		records:   records,
		life:      &lifeHandler{engine: o.Engine, records: records},
		retained:  &retainedHandler{threads: o.Threads},
		leases:    &leaseHandler{threads: o.Threads},
		transfers: &transferHandler{transferTimeout: o.transferTimeout},
		lookups:   &lookupHandler{threads: o.Threads, reader: o.Reader, find: s.lookup, access: reviews, records: records},
		history:   &historyHandler{threads: o.Threads},
		runs:      &runHandler{threads: o.Threads, engine: o.Engine},

		messages: &messageHandler{engine: o.Engine, access: reviews},
		searches: &searchHandler{threads: o.Threads, engine: o.Engine, find: s.lookup, access: reviews},
		files:    &fileHandler{transferTimeout: o.transferTimeout},
		state:    &stateHandler{},
		values:   &valueHandler{},
		kvStores: &kvStoreHandler{threads: o.Threads},
		env:      &envHandler{threads: o.Threads},
		streams: &streamHandler{threads: o.Threads, streamOptions: streamOptions{
			heartbeat: o.heartbeat, slowClient: o.slowClient, transferTimeout: o.transferTimeout, stopping: s.stopping,
		}},

		code: &codeHandler{engine: o.Engine, access: reviews, codeOptions: codeOptions{
			heartbeat: o.heartbeat, transferTimeout: o.transferTimeout, stopping: s.stopping,
		}},
		endpoints:     &endpointHandler{engine: o.Engine, transferTimeout: o.transferTimeout},
		tools:         &toolHandler{engine: o.Engine},
		approvals:     &approvalHandler{engine: o.Engine, recorder: o.Recorder},
		effects:       &effectHandler{effects: o.Effects},
		family:        &familyHandler{threads: o.Threads, engine: o.Engine, children: o.Children},
		relationships: &relationshipHandler{find: s.lookup},
	}
}
