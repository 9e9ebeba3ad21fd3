package conformance

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/test/harness"
)

var _ = Describe("Firings without a thread", func() {
	It("give their code the values of Secrets and ConfigMaps, as they are at the time, and show none in their log", Label("EFF-03", "ENV-03", "ENV-05"), func(ctx SpecContext) {
		ns := namespace(ctx)
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "settings"}, Data: map[string]string{"region": "north"}}
		create(ctx, secretOf(ns, "creds", nil, map[string]string{"token": "hush-hush-1"}), settings, harness.Effect(ns, "report", `
import { defineEffect } from '@standardagents/builder';
export default defineEffect({ description: 'x', handler: async (state) => {
  const token = await state.env('TOKEN');
  console.log('region', await state.env('REGION'), 'token', token, 'backwards', [...token].reverse().join(''));
} });`))
		o := scheduled(ns, "report", skeinv1.ScheduledEffectSpec{Effect: "report", Schedules: never, RunOnCreation: true,
			Env: []skeinv1.EnvVar{secretVar("TOKEN", "creds", "token"), {Name: "REGION", Type: skeinv1.EnvText, ValueFrom: &skeinv1.EnvVarSource{
				ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Key: "region"}}}}})
		create(ctx, o)
		logged := func(want string) {
			GinkgoHelper()
			Eventually(ctx, func(g Gomega) {
				out, err := cluster.Plugin(ctx, "-n", ns, "effect", "logs", "report")
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(out).To(ContainSubstring(want))
			}).Should(Succeed())
		}
		logged("region north token [redacted] backwards 1-hsuh-hsuh")

		Expect(cluster.Client.Update(ctx, secretOf(ns, "creds", nil, map[string]string{"token": "hush-hush-2"}))).To(Succeed())
		settings.Data["region"] = "south"
		Expect(cluster.Client.Update(ctx, settings)).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			_, err := cluster.Plugin(ctx, "-n", ns, "effect", "run", "report")
			g.Expect(err).NotTo(HaveOccurred())
			g.Eventually(ctx, func() string { return firingsOf(ctx, g, o).Firings[0].Status }).Should(Equal("succeeded"))
			g.Expect(firingsOf(ctx, g, o).Firings[0].Log).To(ContainSubstring("region south token [redacted] backwards 2-hsuh-hsuh"))
		}).Should(Succeed())
	}, SpecTimeout(3*time.Minute))

	It("sign the calls of a Tool that says so", Label("EFF-03"), func(ctx SpecContext) {
		ns := namespace(ctx)
		server := toolServer(func(w http.ResponseWriter, r *http.Request, body string) {
			digest := sha256.Sum256([]byte(body))
			mac := hmac.New(sha256.New, []byte("signing-key"))
			mac.Write([]byte(strings.Join([]string{r.Method, r.RequestURI, r.Header.Get("Skein-Timestamp"), hex.EncodeToString(digest[:])}, "\n")))
			if r.Header.Get("Skein-Signature") != "v1="+hex.EncodeToString(mac.Sum(nil)) {
				http.Error(w, "the signature is wrong", http.StatusUnauthorized)
			}
		})
		tool := harness.HTTPTool(ns, "count", skeinv1.HTTPTool{Method: "POST", URL: server.URL + "/count?at=once", Signing: &skeinv1.HTTPSigning{SecretKeyRef: refOf("shop", "signing")}},
			map[string]any{"n": map[string]any{"type": "integer"}}, "n")
		o := scheduled(ns, "count", skeinv1.ScheduledEffectSpec{
			CallTool: &skeinv1.EffectToolCall{Name: "count"}, Args: &runtime.RawExtension{Raw: []byte(`{"n":3}`)}, Schedules: never, RunOnCreation: true})
		create(ctx, secretOf(ns, "shop", nil, map[string]string{"signing": "signing-key"}), tool, o)
		Eventually(ctx, func(g Gomega) {
			list := firingsOf(ctx, g, o).Firings
			g.Expect(list).To(HaveLen(1))
			g.Expect(list[0].Status).To(Equal("succeeded"), list[0].Error)
		}).Should(Succeed())
		requests := server.Requests()
		Expect(requests).To(HaveLen(1))
		Expect(requests[0].Body).To(MatchJSON(`{"n":3}`))
		Expect(requests[0].Header.Get("Idempotency-Key")).NotTo(BeEmpty())
	}, SpecTimeout(2*time.Minute))
})
