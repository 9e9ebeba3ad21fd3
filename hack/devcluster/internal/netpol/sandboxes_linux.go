package netpol

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandbox is a pod's network, as the container runtime knows it.
type sandbox struct {
	namespace, name, uid string
	ip                   netip.Addr
}

// sandboxes follows the pods' addresses at their source. The container runtime reports them when a pod's network
// exists, before its containers start. The pod's status would have them up to a second later.
type sandboxes struct {
	client  cri.RuntimeServiceClient
	changed func()

	mu   sync.Mutex
	byID map[string]sandbox
}

func newSandboxes(socket string, changed func()) (*sandboxes, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return &sandboxes{client: cri.NewRuntimeServiceClient(conn), changed: changed, byID: map[string]sandbox{}}, nil
}

func (s *sandboxes) list() []sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]sandbox, 0, len(s.byID))
	for _, sb := range s.byID {
		out = append(out, sb)
	}
	return out
}

// follow reads the runtime's events until ctx ends, and reconnects when the runtime was restarted.
func (s *sandboxes) follow(ctx context.Context) {
	for ctx.Err() == nil {
		if err := s.stream(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "network policies: events of the container runtime:", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (s *sandboxes) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := s.client.GetContainerEvents(ctx, &cri.GetEventsRequest{})
	if err != nil {
		return err
	}
	// List after subscribing, so that nothing is missed in between.
	if err := s.relist(ctx); err != nil {
		return err
	}
	for {
		e, err := events.Recv()
		if err != nil {
			return err
		}
		switch {
		case e.ContainerEventType == cri.ContainerEventType_CONTAINER_DELETED_EVENT:
			s.update(e.ContainerId, nil)
		case e.PodSandboxStatus != nil:
			s.update(e.PodSandboxStatus.Id, e.PodSandboxStatus)
		}
	}
}

func (s *sandboxes) relist(ctx context.Context) error {
	list, err := s.client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.byID = map[string]sandbox{}
	s.mu.Unlock()
	for _, p := range list.Items {
		// A sandbox that is gone by now has no status, and needs none.
		if st, err := s.client.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: p.Id}); err == nil {
			s.update(p.Id, st.Status)
		}
	}
	s.changed()
	return nil
}

func (s *sandboxes) update(id string, st *cri.PodSandboxStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, had := s.byID[id]
	ip, err := netip.ParseAddr(st.GetNetwork().GetIp())
	if st.GetState() != cri.PodSandboxState_SANDBOX_READY || st == nil || err != nil {
		if had {
			delete(s.byID, id)
			s.changed()
		}
		return
	}
	now := sandbox{st.Metadata.GetNamespace(), st.Metadata.GetName(), st.Metadata.GetUid(), ip}
	if now != was {
		s.byID[id] = now
		s.changed()
	}
}
