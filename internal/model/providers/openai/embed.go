package openai

import (
	"context"
	"net/http"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/skein-dev/skein/internal/model"
)

// Embed implements model.Embedder.
func (c *Client) Embed(ctx context.Context, texts []string) (*model.Embeddings, error) {
	if len(texts) == 0 {
		return &model.Embeddings{}, nil
	}
	call, done, err := c.endpoint.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var raw *http.Response
	res, err := c.embeddings.New(call, sdk.EmbeddingNewParams{
		Model: c.spec.Model, Input: sdk.EmbeddingNewParamsInputUnion{OfArrayOfStrings: texts},
		EncodingFormat: sdk.EmbeddingNewParamsEncodingFormatFloat,
	}, option.WithResponseInto(&raw))
	if err != nil {
		return nil, c.explain(ctx, call, err, raw, false)
	}
	out := &model.Embeddings{Vectors: make([][]float32, len(texts)), Usage: model.Reported(model.Usage{InputTokens: res.Usage.PromptTokens})}
	width := 0
	for _, e := range res.Data {
		if e.Index < 0 || e.Index >= int64(len(texts)) || len(e.Embedding) == 0 || (width > 0 && len(e.Embedding) != width) {
			return nil, c.badVectors()
		}
		width = len(e.Embedding)
		v := make([]float32, width)
		for i, x := range e.Embedding {
			v[i] = float32(x)
		}
		out.Vectors[e.Index] = v
	}
	for _, v := range out.Vectors {
		if v == nil {
			return nil, c.badVectors()
		}
	}
	return out, nil
}

func (c *Client) badVectors() *model.Error {
	return model.Errorf(model.KindBadAnswer, "the endpoint %s did not answer with one embedding for each text: check that spec.model of the Model is one for embeddings", c.endpoint.Shown())
}
