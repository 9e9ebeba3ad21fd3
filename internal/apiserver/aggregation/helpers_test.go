package aggregation

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/coder/websocket"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimeclient "github.com/skein-dev/skein/api/runtime/client"
	"github.com/skein-dev/skein/internal/apiserver/serving"
)

func apiService(ctx context.Context) *apiregistrationv1.APIService {
	GinkgoHelper()
	s := &apiregistrationv1.APIService{}
	Expect(env.Client.Get(ctx, client.ObjectKey{Name: serving.APIServiceName}, s)).To(Succeed())
	return s
}

func available(s *apiregistrationv1.APIService) apiregistrationv1.ConditionStatus {
	for _, c := range s.Status.Conditions {
		if c.Type == apiregistrationv1.Available {
			return c.Status
		}
	}
	return ""
}

func as(cfg *rest.Config) *runtimeclient.Client {
	GinkgoHelper()
	c, err := runtimeclient.New(cfg)
	Expect(err).NotTo(HaveOccurred())
	return c
}

// role grants a user rights in the namespace.
func role(ctx context.Context, ns, user string, rules ...rbacv1.PolicyRule) {
	GinkgoHelper()
	Expect(env.Allow(ctx, ns, user, rules...)).To(Succeed())
}

// run runs kubectl.
func run(args ...string) (string, error) {
	args = append([]string{"--cache-dir", filepath.Join(dir, "kubectl")}, args...)
	out, err := exec.Command(filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), args...).CombinedOutput()
	return string(out), err
}

// kubectl runs kubectl as the admin.
func kubectl(args ...string) string {
	GinkgoHelper()
	file := filepath.Join(dir, "admin")
	_, err := env.Kubeconfig("admin", file, "system:masters")
	Expect(err).NotTo(HaveOccurred())
	out, err := run(append([]string{"--kubeconfig", file}, args...)...)
	Expect(err).NotTo(HaveOccurred(), out)
	return out
}

// serviceAccount creates an account with these rights in the namespace and returns a token for it.
func serviceAccount(ctx context.Context, ns string, rules ...rbacv1.PolicyRule) string {
	GinkgoHelper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "app"}}
	Expect(env.Client.Create(ctx, sa)).To(Succeed())
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(600))}}
	Expect(env.Client.SubResource("token").Create(ctx, sa, token)).To(Succeed())
	role(ctx, ns, "system:serviceaccount:"+ns+":app", rules...)
	return token.Status.Token
}

func webSocket(ctx context.Context, cfg *rest.Config, path string, subprotocols ...string) *websocket.Conn {
	GinkgoHelper()
	conn, _, err := dial(ctx, cfg, path, subprotocols...)
	Expect(err).NotTo(HaveOccurred())
	return conn
}

// dial opens a WebSocket and also returns the status of the answer.
func dial(ctx context.Context, cfg *rest.Config, path string, subprotocols ...string) (*websocket.Conn, int, error) {
	GinkgoHelper()
	tls, err := rest.TLSConfigFor(cfg)
	Expect(err).NotTo(HaveOccurred())
	tls.NextProtos = []string{"http/1.1"}
	transport := &http.Transport{TLSClientConfig: tls}
	DeferCleanup(transport.CloseIdleConnections)
	conn, resp, err := websocket.Dial(ctx, strings.TrimSuffix(cfg.Host, "/")+path, &websocket.DialOptions{ //nolint:bodyclose // the library closes it
		HTTPClient: &http.Client{Transport: transport}, Subprotocols: subprotocols,
	})
	if resp == nil {
		return nil, 0, err
	}
	if conn != nil {
		DeferCleanup(func() { _ = conn.CloseNow() })
	}
	return conn, resp.StatusCode, err
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
