package openai

import "github.com/skein-dev/skein/internal/model/providers/wire"

// responsesEvent is an event of a streamed response, as far as Skein reads it. Its type says which of the other fields it has.
type responsesEvent struct {
	Type     wire.Text               `json:"type"`
	Delta    wire.Text               `json:"delta"`
	Item     wire.Object[outputItem] `json:"item"`
	Response wire.Object[response]   `json:"response"`
	Code     wire.Text               `json:"code"`    // of an error
	Message  wire.Text               `json:"message"` // of an error
}

// response is a complete response.
type response struct {
	ID                 wire.Text `json:"id"`
	Status             wire.Text `json:"status"`
	PreviousResponseID wire.Text `json:"previous_response_id"`
	Error              wire.Object[struct {
		Code    wire.Text `json:"code"`
		Message wire.Text `json:"message"`
	}] `json:"error"`
	IncompleteDetails wire.Object[struct {
		Reason wire.Text `json:"reason"`
	}] `json:"incomplete_details"`
	Output wire.List[outputItem]       `json:"output"`
	Usage  wire.Object[responsesUsage] `json:"usage"`
}

// outputItem is a part of a response. Its type says which of the other fields it has.
type outputItem struct {
	Type    wire.Text `json:"type"`
	ID      wire.Text `json:"id"`
	Content wire.List[struct {
		Text    wire.Text `json:"text"`
		Refusal wire.Text `json:"refusal"`
	}] `json:"content"`
	CallID    wire.Text `json:"call_id"`
	Name      wire.Text `json:"name"`
	Arguments wire.Text `json:"arguments"`
	Summary   wire.List[struct {
		Text wire.Text `json:"text"`
	}] `json:"summary"`
	EncryptedContent wire.Text `json:"encrypted_content"`
}

// responsesUsage is the usage of a call in tokens.
type responsesUsage struct {
	Input        wire.Int                      `json:"input_tokens"`
	Output       wire.Int                      `json:"output_tokens"`
	InputDetails wire.Object[inputDetails]     `json:"input_tokens_details"`
	Details      wire.Object[reasoningDetails] `json:"output_tokens_details"`
}

// statusFailed is the status of a response that is no answer.
const statusFailed = "failed"
