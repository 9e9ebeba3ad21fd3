package window

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
	"github.com/skein-dev/skein/internal/model"
)

// Within returns a client that keeps requests within a Model's context window (AGT-06). It first leaves out the oldest
// turns whole, and then shortens the largest results of the newest turn. A request that still does not fit fails with a
// *model.Error of CodeContextLength.
//
// When the provider says that a request was too long, the client makes the request once more, with less. It remembers
// the limit only when the shorter request is answered: a refusal that less text does not cure was about something else.
// The Response says what was left out.
func Within(c model.Client, name string, spec skeinv1.ModelSpec) model.Client {
	k := &keeper{client: c, name: name}
	if can := spec.Capabilities; can != nil {
		k.window = can.ContextWindow
	}
	k.spec = spec
	return k
}

type keeper struct {
	client model.Client
	name   string
	spec   skeinv1.ModelSpec
	window int64 // as the Model declares it; 0 when undeclared
	scale  Scale

	// mu guards reported and ceiling.
	mu sync.Mutex
	// reported is the window that the provider named when it refused a request and accepted a shorter one; 0 for none.
	reported int64
	// ceiling is below what the provider refused without naming its window, in estimated tokens, when it accepted less;
	// 0 for none.
	ceiling int
}

// fitted is a request as it is sent.
type fitted struct {
	req       model.Request
	leftOut   int
	shortened int
	estimated int // estimated tokens of the whole request without the scale; 0 when unknown
	size      int64
}

// Stream implements model.Client. It shortens the request to the context window of the model. If the provider refuses it as too long
// nevertheless, Stream sends it once more with less, and remembers what the refusal said of the window.
func (k *keeper) Stream(ctx context.Context, req model.Request, emit func(model.Delta)) (*model.Response, error) {
	f, err := k.fit(req)
	if err != nil {
		return nil, err
	}
	sent := false
	heard := func(d model.Delta) {
		sent = !d.Reset
		emit(d)
	}
	res, err := k.client.Stream(ctx, f.req, heard)
	if refused := tooLong(err); refused != nil && ctx.Err() == nil {
		less, taught, ok := k.less(req, f, refused)
		if !ok {
			return nil, advised(refused)
		}
		if sent {
			emit(model.Delta{Reset: true})
		}
		f = less
		f.req.Deferral = nil
		if res, err = k.client.Stream(ctx, f.req, emit); err != nil {
			if refused = tooLong(err); refused != nil {
				err = advised(refused)
			}
		} else {
			k.remember(taught)
		}
	}
	if err != nil {
		return nil, err
	}
	k.learn(f, res)
	if f.leftOut > 0 || f.shortened > 0 {
		res.Read = f.req.Messages
		res.Trimmed = &model.Trimmed{LeftOut: f.leftOut, Kept: len(f.req.Messages), Shortened: f.shortened, Tokens: int(float64(f.estimated) * k.scale.Factor()), ContextWindow: f.size}
		if len(f.req.Messages) > 0 && f.req.Messages[0].Role == model.RoleSystem {
			res.Trimmed.Kept--
		}
	}
	return res, nil
}

// Fill implements model.Meter.
func (k *keeper) Fill(req model.Request) (tokens, capacity int) {
	size, ceiling := k.bounds()
	if size > 0 {
		capacity = k.capacity(size)
	}
	if ceiling > 0 && (capacity == 0 || ceiling < capacity) {
		capacity = ceiling
	}
	if capacity == 0 {
		return 0, 0
	}
	tokens = overhead(&req)
	for i := range req.Messages {
		tokens += Message(&req.Messages[i])
	}
	return tokens, capacity
}

// Embed implements model.Embedder if the client does.
func (k *keeper) Embed(ctx context.Context, texts []string) (*model.Embeddings, error) {
	e, err := model.EmbedderOf(k.client, k.name)
	if err != nil {
		return nil, err
	}
	return e.Embed(ctx, texts)
}

// bounds returns the window in tokens, and the ceiling for requests in estimated tokens; 0 for what is unknown.
func (k *keeper) bounds() (size int64, ceiling int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	size = k.window
	if k.reported > 0 && (size == 0 || k.reported < size) {
		size = k.reported
	}
	return size, k.ceiling
}

// fit makes a request fit what is known of the window.
func (k *keeper) fit(req model.Request) (fitted, error) {
	size, ceiling := k.bounds()
	if size == 0 && ceiling == 0 {
		return k.whole(req), nil
	}
	fixed := overhead(&req)
	capacity := ceiling
	if size > 0 {
		capacity = k.capacity(size)
		if ceiling > 0 {
			capacity = min(capacity, ceiling)
		}
	}
	f, ok := k.fitTo(req, capacity-fixed)
	f.estimated, f.size = f.estimated+fixed, size
	if ok {
		return f, nil
	}
	factor := k.scale.Factor()
	most := int64(float64(capacity) * factor)
	if size > 0 && ceiling == 0 {
		most = size - answerReserve(size, &k.spec)
	}
	return f, tooLarge(k.name, &f.req, most, factor)
}

// capacity returns how many estimated tokens a window has besides the answer.
func (k *keeper) capacity(size int64) int { return k.capacityAt(size, k.scale.Factor()) }

func (k *keeper) capacityAt(size int64, factor float64) int {
	return int(float64(size-answerReserve(size, &k.spec)) / factor)
}

// whole returns a request with everything that its session has.
func (k *keeper) whole(req model.Request) fitted {
	f := fitted{leftOut: req.SessionLeftOut}
	req.Messages = model.Without(req.Messages, req.SessionLeftOut)
	f.req = req
	return f
}

// fitTo makes the messages of a request fit a budget. It leaves the provider's conversation as it is, and starts a new
// one when that does not fit. ok is false when the budget is exceeded.
func (k *keeper) fitTo(req model.Request, budget int) (f fitted, ok bool) {
	if req.Session != "" {
		f = k.whole(req)
		if all := fitMessages(f.req.Messages, budget); all.Fits && all.LeftOut == 0 {
			f.estimated = all.Tokens
			return f, true
		}
	}
	req.Session, req.SessionMessages, req.SessionLeftOut = "", 0, 0
	fit := fitMessages(req.Messages, budget)
	f = fitted{req: req, leftOut: fit.LeftOut, estimated: fit.Tokens}
	f.req.Messages = fit.Messages
	if !fit.Fits {
		f.req.Messages, f.shortened, f.estimated = Shorten(fit.Messages, budget)
	}
	return f, f.estimated <= budget
}

// fitMessages is Fit, also for conversations without a system prompt.
func fitMessages(messages []model.Message, budget int) Fitted {
	if len(messages) > 0 && messages[0].Role == model.RoleSystem {
		return Fit(messages, budget, Message)
	}
	none := model.Message{Role: model.RoleSystem}
	f := Fit(slices.Insert(slices.Clone(messages), 0, none), budget+Message(&none), Message)
	f.Messages, f.Tokens = f.Messages[1:], f.Tokens-Message(&none)
	return f
}

// overhead returns the estimated tokens of a request besides its messages.
func overhead(req *model.Request) int { return Tools(req.Tools) + Text(string(req.Schema)) }

// answerReserve returns how many tokens of a window are reserved for the answer: its limit, but at most half of the
// window.
func answerReserve(size int64, m *skeinv1.ModelSpec) int64 {
	half := size / 2
	switch {
	case m.Options != nil && m.Options.MaxTokens != nil:
		return min(int64(*m.Options.MaxTokens), half)
	case m.Capabilities != nil && m.Capabilities.MaxOutputTokens > 0:
		return min(m.Capabilities.MaxOutputTokens, half)
	}
	return min(4096, half/2)
}

// tooLong returns the error with which a provider refuses a request that is too long; nil for other errors.
func tooLong(err error) *model.Error {
	var e *model.Error
	if errors.As(err, &e) && e.Code == model.CodeContextLength {
		return e
	}
	return nil
}

// lesson is what a refusal says about the model, if it was about the length. It was when a shorter request is not
// refused.
type lesson struct {
	window    int64 // 0 when not named
	ceiling   int   // 0 for none
	estimated int   // estimated tokens of the refused request
	counted   int64 // the provider's count for it; 0 when not named, or when nothing can be learned from it
}

// remember stores a lesson.
func (k *keeper) remember(l lesson) {
	k.scale.Learn(l.estimated, l.counted)
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.window > 0 {
		k.reported = l.window
	}
	if l.ceiling > 0 && (k.ceiling == 0 || l.ceiling < k.ceiling) {
		k.ceiling = l.ceiling
	}
}

// less makes a refused request smaller. ok is false when nothing can be left out. It uses what the refusal says, but
// does not remember it.
func (k *keeper) less(req model.Request, refused fitted, e *model.Error) (f fitted, l lesson, ok bool) {
	tokens := refused.estimated
	if tokens == 0 {
		tokens = overhead(&refused.req)
		for i := range refused.req.Messages {
			tokens += Message(&refused.req.Messages[i])
		}
	}
	capacity := tokens / 2 // the excess is unknown, and there is only one more attempt
	size, _ := k.bounds()
	if e.Limit >= smallestWindow {
		l.window, l.estimated = e.Limit, tokens
		if !pictured(&refused.req) {
			l.counted = e.Counted
		}
		if size = e.Limit; k.window > 0 {
			size = min(size, k.window)
		}
		capacity = min(k.capacityAt(size, k.scale.FactorWith(l.estimated, l.counted)), tokens*9/10)
	} else if e.Status != http.StatusRequestEntityTooLarge { // that status is about bytes
		l.ceiling = tokens * 9 / 10
	}
	req.Session, req.SessionMessages, req.SessionLeftOut = "", 0, 0 // what the provider keeps is part of what is too long
	fixed := overhead(&req)
	f, ok = k.fitTo(req, capacity-fixed)
	f.estimated += fixed
	f.size = size
	return f, l, ok || f.estimated < tokens
}

// smallestWindow is smaller than the window of any model. A provider that names a smaller limit means something else.
const smallestWindow = 256

// advised returns a refusal with advice.
func advised(e *model.Error) *model.Error {
	out := *e
	out.Message += "; the request cannot be made shorter: " + remedies
	return &out
}

const remedies = "say less at once, keep large data in files, let tools give shorter results, offer fewer tools, or use a model with a larger window (spec.capabilities.contextWindow)"

// tooLarge returns an error that names the largest part of a request that does not fit, and what to do.
func tooLarge(name string, req *model.Request, most int64, factor float64) *model.Error {
	tools := overhead(req)
	total, system, newest := tools, 0, 0
	for i := range req.Messages {
		size := Message(&req.Messages[i])
		total += size
		switch {
		case i == 0 && req.Messages[i].Role == model.RoleSystem:
			system = size
		case req.Messages[i].Role == model.RoleUser:
			newest = max(newest, size)
		}
	}
	say := func(tokens int) int { return int(float64(tokens) * factor) }
	var what string
	switch {
	case newest*2 >= total:
		what = fmt.Sprintf("a message of about %d tokens is most of it: shorten it, or attach large content as a file, so that tools can read parts of it", say(newest))
	case system*2 >= total:
		what = fmt.Sprintf("the system prompt, of about %d tokens, is most of it: shorten the prompt and what it includes", say(system))
	case tools*2 >= total:
		what = fmt.Sprintf("the definitions of %d tools, of about %d tokens, are most of it: offer fewer", len(req.Tools), say(tools))
	default:
		what = "say less at once, keep large data in files, let tools give shorter results, or offer fewer tools"
	}
	e := model.Errorf(model.KindConfig, "the prompt and the newest turn have about %d tokens, more than the %d that the model %s reads beside its answer; %s; or use a model with a larger window (spec.capabilities.contextWindow)",
		say(total), most, name, what)
	e.Code = model.CodeContextLength
	return e
}

func pictured(req *model.Request) bool {
	return slices.ContainsFunc(req.Messages, func(m model.Message) bool { return len(m.Images) > 0 })
}

// learn takes in the provider's count. It ignores requests with images, whose cost says nothing about text.
func (k *keeper) learn(f fitted, res *model.Response) {
	if f.estimated > 0 && res.Usage != nil && res.Session == "" && !pictured(&f.req) {
		k.scale.Learn(f.estimated, res.Usage.InputTokens)
	}
}
