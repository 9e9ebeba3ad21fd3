package openai

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/skein-dev/skein/internal/model"
	"github.com/skein-dev/skein/internal/model/providers/wire"
)

// embeddingsRequest is the body of a request to the embeddings API.
type embeddingsRequest struct {
	Model          string   `json:"model"`
	Input          []string `json:"input"`
	EncodingFormat string   `json:"encoding_format"`
}

// embeddings is its answer, as far as Skein reads it.
type embeddings struct {
	Data wire.List[struct {
		Index     wire.Int `json:"index"`
		Embedding vector   `json:"embedding"`
	}] `json:"data"`
	Usage wire.Object[struct {
		Prompt wire.Int `json:"prompt_tokens"`
	}] `json:"usage"`
}

// vector is a list of numbers, or its base64, which some servers send although they are asked for numbers. Of another value it is empty.
type vector []float32

// UnmarshalJSON implements json.Unmarshaler.
func (v *vector) UnmarshalJSON(data []byte) error {
	*v = nil
	switch list := gjson.ParseBytes(data); {
	case list.Type == gjson.String:
		raw, err := base64.StdEncoding.DecodeString(list.Str)
		if err != nil || len(raw)%4 != 0 {
			return nil
		}
		for ; len(raw) > 0; raw = raw[4:] {
			*v = append(*v, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
		}
	case list.IsArray():
		list.ForEach(func(_, x gjson.Result) bool {
			_, err := strconv.ParseFloat(x.Str, 64)
			if x.Type == gjson.JSON || (x.Type == gjson.String && err != nil) {
				*v = nil
				return false
			}
			*v = append(*v, float32(x.Float()))
			return true
		})
	}
	return nil
}

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
	res, err := c.embeddings(ctx, call, texts)
	if err != nil {
		return nil, err
	}
	out := &model.Embeddings{Vectors: make([][]float32, len(texts)), Usage: model.Reported(model.Usage{InputTokens: int64(res.Usage.Value.Prompt)})}
	width := 0
	for _, e := range res.Data {
		if e.Index < 0 || e.Index >= wire.Int(len(texts)) || len(e.Embedding) == 0 || (width > 0 && len(e.Embedding) != width) {
			return nil, c.badVectors()
		}
		width = len(e.Embedding)
		out.Vectors[e.Index] = e.Embedding
	}
	for _, v := range out.Vectors {
		if v == nil {
			return nil, c.badVectors()
		}
	}
	return out, nil
}

func (c *Client) embeddings(ctx, call context.Context, texts []string) (*embeddings, error) {
	res, failure := c.post(call, "embeddings", embeddingsRequest{Model: c.spec.Model, Input: texts, EncodingFormat: "float"})
	if failure != nil {
		return nil, c.explain(ctx, call, *failure)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	var out embeddings
	if err == nil {
		err = json.NewDecoder(bytes.NewReader(text)).Decode(&out)
	}
	if err != nil {
		return nil, c.explain(ctx, call, wire.Failure{Err: err, Response: res})
	}
	return &out, nil
}

func (c *Client) badVectors() *model.Error {
	return model.Errorf(model.KindBadAnswer, "the endpoint %s did not answer with one embedding for each text: check that spec.model of the Model is one for embeddings", c.endpoint.Shown())
}
