package definitions_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/kube/definitions"
	"github.com/skein-dev/skein/internal/kube/kubetest"
	"github.com/skein-dev/skein/internal/kube/objects"
	"github.com/skein-dev/skein/internal/model/providers"
	"github.com/skein-dev/skein/internal/sandbox"
	"github.com/skein-dev/skein/internal/sandbox/compile"
	"github.com/skein-dev/skein/internal/sandbox/inspect"
)

var _ = Describe("Code that compiles and cannot run", Label("TOL-02", "K8S-01"), func() {
	const wrong = "import { nanoid } from 'nanoid';\n\nexport default () => nanoid();"
	var d *definitions.Resolver
	BeforeEach(func() {
		c := kubetest.Cluster(interceptor.Funcs{})
		d = definitions.New(c, objects.NewContents(c, c), func(filename, source string, lang sandbox.Language) (sandbox.Module, *sandbox.Error) {
			m, failed := compile.Compile(filename, source, lang)
			if failed == nil {
				m.Facts = inspect.Module(m.Code)
			}
			return m, failed
		}, providers.NewFactory(nil))
	})

	It("is found in every kind that has code, with its place", func(ctx SpecContext) {
		code := skeinv1.CodeSource{Inline: wrong}
		hooks := []skeinv1.Hook{{Hook: skeinv1.HookAfterCreateMessage, Code: code}}
		for kind, check := range map[string]func() error{
			"Tool": func() error { _, err := d.Tools.Resolve(ctx, tool("t", wrong)); return err },
			"Effect": func() error {
				_, err := d.ResolveEffect(ctx, &skeinv1.Effect{ObjectMeta: kubetest.Meta("t"), Spec: skeinv1.EffectSpec{Code: code}})
				return err
			},
			"ThreadEndpoint": func() error {
				_, err := d.Endpoints.Resolve(ctx, &skeinv1.ThreadEndpoint{ObjectMeta: kubetest.Meta("t"), Spec: skeinv1.ThreadEndpointSpec{Path: "/t", Code: code}})
				return err
			},
			"Agent": func() error {
				return d.Code.CheckAgentHooks(ctx, &skeinv1.Agent{ObjectMeta: kubetest.Meta("t"), Spec: skeinv1.AgentSpec{Hooks: hooks}})
			},
			"Prompt": func() error {
				return d.Code.CheckPromptHooks(ctx, &skeinv1.Prompt{ObjectMeta: kubetest.Meta("t"), Spec: skeinv1.PromptSpec{Hooks: hooks}})
			},
			"handler": func() error {
				return d.Code.CheckHandler(ctx, &skeinv1.Agent{ObjectMeta: kubetest.Meta("t")}, "spec.sideA", &skeinv1.SideHandler{Code: code})
			},
		} {
			Expect(check()).To(kubetest.NotReady(skeinv1.ReasonInvalidCode, ".ts:1:24: nanoid is not available in sandboxes", "npx esbuild"), kind)
		}
	})

	It("is judged as what it is declared as, however often the same text is declared", func(ctx SpecContext) {
		effect := "import { defineEffect } from '@standardagents/builder';\nexport default defineEffect({ execute: async () => {} });"
		_, err := d.ResolveEffect(ctx, &skeinv1.Effect{ObjectMeta: kubetest.Meta("t"), Spec: skeinv1.EffectSpec{Code: skeinv1.CodeSource{Inline: effect}}})
		Expect(err).NotTo(HaveOccurred())
		_, err = d.Tools.Resolve(ctx, tool("t", effect))
		Expect(err).To(kubetest.NotReady(skeinv1.ReasonInvalidCode, "t.ts: the default export is an effect (defineEffect), but this is the code of a Tool"))
	})

	It("tells all problems at once", func(ctx SpecContext) {
		_, err := d.Tools.Resolve(ctx, tool("t", "import { read } from '../lib/files';\nexport const tool = defineTool({ execute: read });"))
		Expect(err).To(kubetest.NotReady(skeinv1.ReasonInvalidCode, "t.ts:1:22: ../lib/files", "t.ts:2:21: defineTool is not defined", "t.ts: the module has no default export"))
	})
})
