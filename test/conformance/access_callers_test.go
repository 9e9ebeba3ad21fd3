package conformance

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/sandbox/pki"
)

// caller is a subject of docs/rights.md with its credentials.
type caller struct {
	token  string
	forged bool // sends the headers of the front proxy
	http   *http.Client
}

// ask makes a request and returns the answer, of which only the head has been read.
func (c *caller) ask(ctx context.Context, method, url, contentType string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, bytesReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.forged {
		r.Header.Set("X-Remote-User", "admin")
		r.Header.Set("X-Remote-Group", "system:masters")
	}
	return c.http.Do(r)
}

// allRoles are the roles of config/rbac that people can be given, by the name of their file.
var allRoles = map[string]string{
	"viewer": "skein-viewer", "editor": "skein-editor", "conversation_reader": "skein-conversation-reader", "conversation_writer": "skein-conversation-writer",
	"approver": "skein-approver", "env_editor": "skein-env-editor", "gateway_editor": "skein-gateway-editor", "quota_editor": "skein-quota-editor",
	"backup": "skein-backup", "user_delegate": "skein-user-delegate",
}

// callers makes everybody of docs/rights.md in a namespace, and waits until the API server knows their rights.
func callers(ctx context.Context, ns string, trusted *x509.CertPool) map[string]*caller {
	GinkgoHelper()
	with := func(own *tls.Certificate) *http.Client {
		// Go sends a certificate only to servers that name its authority as one that they trust. An attacker sends it anyway.
		given := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil }
		return &http.Client{Timeout: patience, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: trusted, GetClientCertificate: given, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
		}}
	}
	plain := func() *http.Client { return with(&tls.Certificate{}) }
	account := func(in, name string, whole bool, roles ...string) *caller {
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: name}}
		if name != "default" { // which every namespace has
			create(ctx, sa)
		} else {
			Eventually(ctx, func() error { return cluster.Client.Get(ctx, client.ObjectKeyFromObject(sa), sa) }).Should(Succeed())
		}
		subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: in, Name: name}}
		for _, role := range roles {
			ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
			if whole {
				b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: in + "-" + name}, RoleRef: ref, Subjects: subjects}
				create(ctx, b)
				DeferCleanup(func(ctx SpecContext) { Expect(cluster.Client.Delete(ctx, b)).To(Succeed()) })
				continue
			}
			create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: in, GenerateName: name + "-"}, RoleRef: ref, Subjects: subjects})
		}
		token := &authenticationv1.TokenRequest{}
		Expect(cluster.Client.SubResource("token").Create(ctx, sa, token)).To(Succeed())
		return &caller{token: token.Status.Token, http: plain()}
	}
	other := namespace(ctx)
	elsewhere := []string{"admin"}
	for _, role := range allRoles {
		elsewhere = append(elsewhere, role)
	}
	list := map[string]*caller{
		"anonymous":        {http: plain()},
		"viewer":           account(ns, "viewer", false, "skein-viewer"),
		"reader":           account(ns, "reader", false, "skein-conversation-reader"),
		"writer":           account(ns, "writer", false, "skein-conversation-writer"),
		"editor":           account(ns, "editor", false, "skein-viewer", "skein-editor"),
		"writer, editor":   account(ns, "both", false, "skein-conversation-writer", "skein-viewer", "skein-editor"),
		"admin":            account(ns, "admin", false, "admin"),
		"admin elsewhere":  account(other, "admin", false, elsewhere...),
		"sandbox: account": account(ns, "default", false),
		"cluster admin":    account(ns, "cluster-admin", true, "cluster-admin"),
		"forged header":    {forged: true, http: plain()},
	}
	ca, err := pki.NewCA(clock.RealClock{}, "Skein sandboxes", time.Hour)
	Expect(err).NotTo(HaveOccurred())
	pair, err := pki.IssueServer(clock.RealClock{}, ca, pki.ServerName("default", ns), time.Hour)
	Expect(err).NotTo(HaveOccurred())
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	Expect(err).NotTo(HaveOccurred())
	list["sandbox: certificate"] = &caller{http: with(&certificate)}

	// The same token before and after its time, so that nothing but the time can be what is refused.
	var sa corev1.ServiceAccount
	Expect(cluster.Client.Get(ctx, client.ObjectKey{Namespace: ns, Name: "cluster-admin"}, &sa)).To(Succeed())
	valid := &caller{token: signedToken(&sa, time.Now().Add(time.Hour)), http: plain()}
	list["expired token"] = &caller{token: signedToken(&sa, time.Now().Add(-time.Minute)), http: plain()}

	knows := func(user string, may authorizationv1.ResourceAttributes) {
		GinkgoHelper()
		Eventually(ctx, func(g Gomega) {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "system:serviceaccount:" + user, Groups: []string{"system:authenticated"}, ResourceAttributes: &may,
			}}
			g.Expect(cluster.Client.Create(ctx, review)).To(Succeed())
			g.Expect(review.Status.Allowed).To(BeTrue(), "%s: %v", user, may)
		}).Should(Succeed())
	}
	objects := func(verb, in string) authorizationv1.ResourceAttributes {
		return authorizationv1.ResourceAttributes{Namespace: in, Verb: verb, Group: skeinv1.GroupVersion.Group, Resource: "agents"}
	}
	threads := func(verb, sub, in string) authorizationv1.ResourceAttributes {
		return authorizationv1.ResourceAttributes{Namespace: in, Verb: verb, Group: runtimev1.GroupVersion.Group, Resource: runtimev1.ThreadsResource, Subresource: sub}
	}
	for _, user := range []string{"viewer", "editor", "both", "admin", "cluster-admin"} {
		knows(ns+":"+user, objects("get", ns))
	}
	for _, user := range []string{"editor", "both", "admin", "cluster-admin"} {
		knows(ns+":"+user, objects("create", ns))
	}
	knows(ns+":reader", threads("get", "messages", ns))
	for _, user := range []string{"writer", "both", "cluster-admin"} {
		knows(ns+":"+user, threads("create", "queue", ns))
	}
	knows(other+":admin", objects("create", other))
	knows(other+":admin", threads("create", "queue", other))
	knows(other+":admin", authorizationv1.ResourceAttributes{Verb: "list", Group: runtimev1.GroupVersion.Group, Resource: string(runtimev1.ViewSearches)})
	resp, err := valid.ask(ctx, http.MethodGet, cluster.Config.Host+"/api/v1/nodes", "", nil)
	Expect(err).NotTo(HaveOccurred())
	Expect(resp.Body.Close()).To(Succeed())
	Expect(resp.StatusCode).To(Equal(http.StatusOK), "the same token before its time")
	return list
}

// signedToken returns a token of a service account with the cluster's own signature.
func signedToken(sa *corev1.ServiceAccount, until time.Time) string {
	GinkgoHelper()
	data, err := os.ReadFile(filepath.Join(filepath.Dir(cluster.Kubeconfig), "pki", "service-accounts.key"))
	Expect(err).NotTo(HaveOccurred())
	block, _ := pem.Decode(data)
	key, err := x509.ParseECPrivateKey(block.Bytes)
	Expect(err).NotTo(HaveOccurred())
	const issuer = "https://kubernetes.default.svc.cluster.local"
	part := func(v any) string {
		text, err := json.Marshal(v)
		Expect(err).NotTo(HaveOccurred())
		return base64.RawURLEncoding.EncodeToString(text)
	}
	signed := part(map[string]string{"alg": "ES256", "typ": "JWT"}) + "." + part(map[string]any{
		"iss": issuer, "aud": []string{issuer}, "sub": "system:serviceaccount:" + sa.Namespace + ":" + sa.Name,
		"iat": until.Add(-2 * time.Hour).Unix(), "nbf": until.Add(-2 * time.Hour).Unix(), "exp": until.Unix(),
		"kubernetes.io": map[string]any{"namespace": sa.Namespace, "serviceaccount": map[string]string{"name": sa.Name, "uid": string(sa.UID)}},
	})
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	Expect(err).NotTo(HaveOccurred())
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}
