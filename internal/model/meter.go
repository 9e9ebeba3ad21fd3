package model

// Meter tells how much of a model's window a request would fill. A Client implements it when it knows the window of its
// model; see FillOf. It is safe for concurrent use.
type Meter interface {
	// Fill returns the estimated tokens of a request, and how many estimated tokens the window has for it besides the
	// answer. Both are 0 when the window is not known.
	Fill(req Request) (tokens, capacity int)
}

// FillOf returns what the Meter of a client says of a request. Both are 0 when the client is no Meter.
func FillOf(c Client, req Request) (tokens, capacity int) {
	if m, ok := c.(Meter); ok {
		return m.Fill(req)
	}
	return 0, 0
}

// Fill implements Meter if the client does.
func (f *fitted) Fill(req Request) (tokens, capacity int) { return FillOf(f.client, f.fit(req)) }

// Fill implements Meter with the first Model, which is the one that is asked first.
func (f *fallbacks) Fill(req Request) (tokens, capacity int) { return FillOf(f.all[0].Client, req) }
