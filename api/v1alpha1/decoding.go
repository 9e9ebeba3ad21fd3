package v1alpha1

import "github.com/skein-dev/skein/api/lenient"

// Decoding is part of each kind and says how an object was decoded. It is not part of the object: it is neither read nor
// written.
type Decoding struct {
	// Undecodable names the fields that could not be decoded, each with what it takes; "" when there are none. The API
	// server keeps such values where a schema is looser than the Go type, or was when the object was made. These fields
	// have their zero values, so an object that has any must not be acted upon.
	Undecodable string `json:"-"`
}

// DecodingProblem returns Undecodable. Controllers show it in the condition Ready, with the reason InvalidSpec.
func (d *Decoding) DecodingProblem() string { return d.Undecodable }

// decode decodes an object whose kind must not fail because of one field.
func decode(data []byte, into any, d *Decoding) error {
	problem, err := lenient.Unmarshal(data, into)
	d.Undecodable = problem.String()
	return err
}

// UnmarshalJSON implements json.Unmarshaler. It fails only for what is not a JSON object; see Decoding.
func (o *Agent) UnmarshalJSON(data []byte) error {
	type plain Agent
	return decode(data, (*plain)(o), &o.Decoding)
}

// UnmarshalJSON implements json.Unmarshaler. It fails only for what is not a JSON object; see Decoding.
func (o *Effect) UnmarshalJSON(data []byte) error {
	type plain Effect
	return decode(data, (*plain)(o), &o.Decoding)
}

// UnmarshalJSON implements json.Unmarshaler. It fails only for what is not a JSON object; see Decoding.
func (o *Model) UnmarshalJSON(data []byte) error {
	type plain Model
	return decode(data, (*plain)(o), &o.Decoding)
}

// UnmarshalJSON implements json.Unmarshaler. It fails only for what is not a JSON object; see Decoding.
func (o *Prompt) UnmarshalJSON(data []byte) error {
	type plain Prompt
	return decode(data, (*plain)(o), &o.Decoding)
}

// UnmarshalJSON implements json.Unmarshaler. It fails only for what is not a JSON object; see Decoding.
func (o *SandboxPool) UnmarshalJSON(data []byte) error {
	type plain SandboxPool
	return decode(data, (*plain)(o), &o.Decoding)
}

// UnmarshalJSON implements json.Unmarshaler. It fails only for what is not a JSON object; see Decoding.
func (o *ScheduledEffect) UnmarshalJSON(data []byte) error {
	type plain ScheduledEffect
	return decode(data, (*plain)(o), &o.Decoding)
}

// UnmarshalJSON implements json.Unmarshaler. It fails only for what is not a JSON object; see Decoding.
func (o *Subagent) UnmarshalJSON(data []byte) error {
	type plain Subagent
	return decode(data, (*plain)(o), &o.Decoding)
}

// UnmarshalJSON implements json.Unmarshaler. It fails only for what is not a JSON object; see Decoding.
func (t *Thread) UnmarshalJSON(data []byte) error {
	type plain Thread
	return decode(data, (*plain)(t), &t.Decoding)
}

// UnmarshalJSON implements json.Unmarshaler. It fails only for what is not a JSON object; see Decoding.
func (o *ThreadEndpoint) UnmarshalJSON(data []byte) error {
	type plain ThreadEndpoint
	return decode(data, (*plain)(o), &o.Decoding)
}

// UnmarshalJSON implements json.Unmarshaler. It fails only for what is not a JSON object; see Decoding.
func (o *ThreadQuota) UnmarshalJSON(data []byte) error {
	type plain ThreadQuota
	return decode(data, (*plain)(o), &o.Decoding)
}

// UnmarshalJSON implements json.Unmarshaler. It fails only for what is not a JSON object; see Decoding.
func (o *ThreadGateway) UnmarshalJSON(data []byte) error {
	type plain ThreadGateway
	return decode(data, (*plain)(o), &o.Decoding)
}

// UnmarshalJSON implements json.Unmarshaler. It fails only for what is not a JSON object; see Decoding.
func (o *Tool) UnmarshalJSON(data []byte) error {
	type plain Tool
	return decode(data, (*plain)(o), &o.Decoding)
}

// UnmarshalJSON implements json.Unmarshaler. It fails only for what is not a JSON object; see Decoding.
func (o *Webhook) UnmarshalJSON(data []byte) error {
	type plain Webhook
	return decode(data, (*plain)(o), &o.Decoding)
}

// UnmarshalJSON implements json.Unmarshaler. It fails only for what is not a JSON object; see Decoding.
func (o *WebhookReceiver) UnmarshalJSON(data []byte) error {
	type plain WebhookReceiver
	return decode(data, (*plain)(o), &o.Decoding)
}
