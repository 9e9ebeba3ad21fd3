package openai_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers/openai"
)

var _ = Describe("Embeddings of other servers", Label("AGT-06", "RUN-07"), func() {
	embed := func(contentType, body string) (*model.Embeddings, error) {
		GinkgoHelper()
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			_, _ = io.WriteString(w, body)
		}))
		DeferCleanup(server.Close)
		c, err := openai.New(model.Config{Namespace: "ns", Name: "gpt", APIKey: canary, Spec: skeinv1.ModelSpec{
			Provider: skeinv1.ProviderOpenAI, Model: "m", Endpoint: server.URL + "/v1",
		}})
		Expect(err).NotTo(HaveOccurred())
		return c.Embed(context.Background(), []string{"a"})
	}

	DescribeTable("are read", func(contentType, body string, want ...float32) {
		out, err := embed(contentType, body)
		Expect(err).NotTo(HaveOccurred())
		Expect(out.Vectors).To(Equal([][]float32{want}))
	},
		Entry("as base64", "application/json", `{"data":[{"embedding":"AAAAPwAAgL4="}]}`, float32(0.5), float32(-0.25)),
		Entry("with numbers in strings", "application/json", `{"data":[{"index":"0","embedding":["0.5",null,true]}],"usage":null}`, float32(0.5), float32(0), float32(1)),
		Entry("without the type of JSON", "text/plain", `{"data":[{"index":0,"embedding":[0.5]}]}`, float32(0.5)),
	)

	DescribeTable("are refused when they are no vectors", func(body, want string) {
		_, err := embed("application/json", body)
		Expect(err).To(And(HaveField("Kind", model.KindBadAnswer), HaveField("Message", ContainSubstring(want))))
	},
		Entry(nil, `null`, "one embedding for each text"),
		Entry(nil, `{}`, "one embedding for each text"),
		Entry(nil, `{"data":[{"index":0,"embedding":"not base64"}]}`, "one embedding for each text"),
		Entry(nil, `{"data":[{"index":0,"embedding":[0.5,"x"]}]}`, "one embedding for each text"),
		Entry(nil, `[]`, "not the JSON of its protocol"),
		Entry(nil, `<html>`, "not the JSON of its protocol"),
	)
})
