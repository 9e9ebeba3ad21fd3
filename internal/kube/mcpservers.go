package kube

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/tool/mcptool"
)

// reachable is 1 for each MCP server that this replica reached at its last attempt, else 0.
var reachable = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "skein_mcp_server_reachable",
	Help: "Whether the MCP server of a Tool could be reached and listed its tools when this replica last tried.",
}, []string{"namespace", "tool"})

func init() { metrics.Registry.MustRegister(reachable) }

// WatchServers returns a function that reports whether an MCP server could be reached: in a metric, and in Events of
// its Tool. A condition cannot report it, because no controller connects to the servers.
func WatchServers(recorder events.EventRecorder) func(*mcptool.Server, error) {
	return func(s *mcptool.Server, err error) {
		t := &skeinv1.Tool{
			TypeMeta:   metav1.TypeMeta{APIVersion: skeinv1.GroupVersion.String(), Kind: "Tool"},
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, UID: types.UID(s.UID)},
		}
		gauge := reachable.WithLabelValues(s.Namespace, s.Name)
		if err != nil {
			gauge.Set(0)
			recorder.Eventf(t, nil, corev1.EventTypeWarning, skeinv1.ReasonServerUnreachable, "Connect", "the MCP server: %v", err)
			return
		}
		gauge.Set(1)
		recorder.Eventf(t, nil, corev1.EventTypeNormal, skeinv1.ReasonServerReachable, "Connect", "the MCP server has listed its tools")
	}
}
