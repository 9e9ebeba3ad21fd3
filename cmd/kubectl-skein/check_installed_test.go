package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// checkTime is the time at which these tests check.
var checkTime = time.Date(2027, 1, 31, 9, 0, 0, 0, time.UTC)

// found performs a check on objects, and returns the levels and messages of its findings. Each that is not ok must say what to do.
func found(t *testing.T, one check, objects ...client.Object) (out []string) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		skeinv1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, coordinationv1.AddToScheme, apiregistrationv1.AddToScheme,
		admissionv1.AddToScheme, networkingv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := &checker{client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), system: "skein-system", now: checkTime}
	c.add = func(f finding) { out = append(out, f.Level+": "+f.Message) }
	one.perform(t.Context(), c)
	return out
}

// certificate returns the PEM of a certificate that ends at a time.
func certificate(t *testing.T, end time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: end.Add(-time.Hour), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func in(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// ofPool returns the Secret of a pool that is to be renewed at a time.
func ofPool(name, renewAt string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: in("team", name)}
	s.Labels, s.Annotations = map[string]string{skeinv1.LabelPool: name}, map[string]string{annotationRenewAt: renewAt}
	return s
}

func deployment(wanted, ready int32) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: in("skein-system", managerName)}
	d.Spec.Replicas, d.Status.ReadyReplicas = &wanted, ready
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "skein"}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "manager", Image: "manager:v1.0.0"}}
	return d
}

func lease(holder string, age time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: in("skein-system", leaseName), Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: ptr.To[int32](15), RenewTime: &metav1.MicroTime{Time: checkTime.Add(-age)}}}
}

func apiService(available apiregistrationv1.ConditionStatus, bundle []byte) *apiregistrationv1.APIService {
	s := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1alpha1.runtime.skein.dev"}}
	s.Spec.CABundle = bundle
	s.Status.Conditions = []apiregistrationv1.APIServiceCondition{{Type: apiregistrationv1.Available, Status: available, Reason: "FailedDiscoveryCheck", Message: "no route to host"}}
	return s
}

func pool(name string, ready metav1.ConditionStatus) *skeinv1.SandboxPool {
	p := &skeinv1.SandboxPool{ObjectMeta: in("team", name)}
	p.Status.Conditions = []metav1.Condition{{Type: skeinv1.ConditionReady, Status: ready, Reason: skeinv1.ReasonScaling, Message: "0 of 2 warm sandboxes are ready"}}
	return p
}

func policies(names ...string) (out []client.Object) {
	for _, name := range names {
		out = append(out, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return out
}

// bindings returns a binding of each policy with an action.
func bindings(action admissionv1.ValidationAction, names ...string) (out []client.Object) {
	for _, name := range names {
		out = append(out, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "of-" + name},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{action}}})
	}
	return out
}

func TestAllAdmissionPoliciesAreChecked(t *testing.T) {
	files, err := filepath.Glob("../../config/admission/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var installed []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var o metav1.PartialObjectMetadata
		if err := yaml.Unmarshal([]byte(strings.SplitN(string(data), "\n---\n", 2)[0]), &o); err != nil {
			t.Fatal(err)
		}
		if o.Kind == "ValidatingAdmissionPolicy" {
			installed = append(installed, o.Name)
		}
	}
	if slices.Sort(installed); !slices.Equal(installed, admissionPolicies) {
		t.Errorf("config/admission has %q, and kubectl skein check looks for %q", installed, admissionPolicies)
	}
}

func TestChecksFindWhatIsWrong(t *testing.T) {
	secret := func(name string, data map[string][]byte) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: in("skein-system", name), Data: data}
	}
	waits := &corev1.Pod{ObjectMeta: in("skein-system", "skein-manager-0")}
	waits.Labels = map[string]string{"app": "skein"}
	waits.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}}}
	network := &networkingv1.NetworkPolicy{ObjectMeta: in("skein-system", "skein-manager")}
	for name, c := range map[string]struct {
		run     check
		objects []client.Object
		want    []string
	}{
		"no manager": {check{"manager", checkManager}, nil,
			[]string{"error: there is no Deployment skein-manager in the namespace skein-system"}},
		"a manager that does not start": {check{"manager", checkManager}, []client.Object{deployment(2, 0), waits},
			[]string{"error: 0 of 2 replicas of manager:v1.0.0 are ready: skein-manager-0 waits: ImagePullBackOff no such image"}},
		"one replica of two": {check{"manager", checkManager}, []client.Object{deployment(2, 1)},
			[]string{"warning: 1 of 2 replicas of manager:v1.0.0 are ready"}},
		"no lease": {check{"leader", checkLeader}, nil,
			[]string{"error: no manager has ever led: there is no Lease manager.skein.dev in the namespace skein-system"}},
		"a leader that is gone": {check{"leader", checkLeader}, []client.Object{lease("one", time.Minute)},
			[]string{"error: one led, and has not renewed its lease for 60s"}},
		"no leader at the moment": {check{"leader", checkLeader}, []client.Object{lease("", time.Second)},
			[]string{"warning: no manager leads at the moment"}},
		"no APIService": {check{"runtime API", checkRuntimeAPI}, nil,
			[]string{"error: there is no APIService v1alpha1.runtime.skein.dev"}},
		"an APIService that is not available": {check{"runtime API", checkRuntimeAPI}, []client.Object{apiService(apiregistrationv1.ConditionFalse, nil)},
			[]string{"error: the APIService v1alpha1.runtime.skein.dev is not available: FailedDiscoveryCheck: no route to host"}},
		"pools": {check{"sandbox pools", checkPools}, []client.Object{pool("a", metav1.ConditionTrue), pool("b", metav1.ConditionFalse)},
			[]string{"warning: team/b is not ready: Scaling: 0 of 2 warm sandboxes are ready", "ok: 1 of 2 are ready"}},
		"no pools": {check{"sandbox pools", checkPools}, nil,
			[]string{"warning: no namespace has a SandboxPool: agents without code work, tools in TypeScript do not"}},
		"no policies": {check{"policies", checkPolicies}, nil, []string{
			"error: these ValidatingAdmissionPolicies refuse nothing, because they do not exist or are not bound with the action Deny: " + strings.Join(admissionPolicies, ", ") +
				"; authors may reach what they have no right to",
			"warning: no NetworkPolicy protects the manager in the namespace skein-system"}},
		"one policy that is not bound, one that only warns, and one that is gone": {check{"policies", checkPolicies},
			slices.Concat(policies(admissionPolicies[1:]...), bindings(admissionv1.Deny, slices.Concat(admissionPolicies[:1], admissionPolicies[3:])...), bindings(admissionv1.Warn, admissionPolicies[2]), []client.Object{network}),
			[]string{"error: these ValidatingAdmissionPolicies refuse nothing, because they do not exist or are not bound with the action Deny: " + strings.Join(admissionPolicies[:3], ", ") +
				"; authors may reach what they have no right to"}},
		"all policies": {check{"policies", checkPolicies}, slices.Concat(policies(admissionPolicies...), bindings(admissionv1.Deny, admissionPolicies...), []client.Object{network}),
			[]string{"ok: 7 admission policies are bound, and 1 network policies are in skein-system"}},
		"certificates": {check{"certificates", checkCertificates}, []client.Object{
			secret("skein-runtime-api-tls", map[string][]byte{"tls.crt": certificate(t, checkTime.Add(-time.Hour)), "tls.key": []byte("secret"), "ca.crt": certificate(t, checkTime.Add(certificateRest+time.Hour))}),
			secret("skein-sandbox-ca", map[string][]byte{"tls.crt": certificate(t, checkTime.Add(certificateRest-time.Hour))}),
			secret("of-another-program", map[string][]byte{"tls.crt": certificate(t, checkTime.Add(-time.Hour))}),
			ofPool("fresh", "2027-01-31T08:30:00Z"), ofPool("late", "2027-01-31T07:30:00Z"), ofPool("older", ""),
		}, []string{
			"error: tls.crt in the Secret skein-system/skein-runtime-api-tls ended at 2027-01-31T08:00:00Z",
			"warning: tls.crt in the Secret skein-system/skein-sandbox-ca ends at 2027-02-07T08:00:00Z",
			"warning: the certificate of the sandbox pool team/late was to be renewed at 2027-01-31T07:30:00Z",
			"ok: 2 certificates of the manager and of sandbox pools are fresh"}},
	} {
		if got := found(t, c.run, c.objects...); !slices.Equal(got, c.want) {
			t.Errorf("%s: found\n%q\nwant\n%q", name, got, c.want)
		}
	}
}

func TestCheckWarnsOfAnAuthorityThatEnds(t *testing.T) {
	for end, want := range map[time.Duration]string{time.Hour: levelWarning, -time.Hour: levelError} {
		var said []string
		checkAuthority(certificate(t, checkTime.Add(end)), checkTime, func(level, remedy, format string, args ...any) {
			said = append(said, level+": "+fmt.Sprintf(format, args...)+"; "+remedy)
		})
		text := fmt.Sprintf("%s: the certificate authority of the APIService ends at %s; The manager renews it. If it does not, see its log.", want, checkTime.Add(end).Format(time.RFC3339))
		if !slices.Equal(said, []string{text}) {
			t.Errorf("said %q, want %q", said, text)
		}
	}
	checkAuthority(certificate(t, checkTime.Add(2*certificateRest)), checkTime, func(string, string, string, ...any) { t.Error("a fresh one was warned of") })
	checkAuthority([]byte("none"), checkTime, func(string, string, string, ...any) { t.Error("none was warned of") })
}
