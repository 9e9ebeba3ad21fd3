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

// Within keeps what a Model gets to read within what it can read (AGT-06): the oldest turns are left out whole, then
// the largest results of the newest turn are shortened, and what fits not even then is an *model.Error of
// CodeContextLength. Where the provider says that a request was too long, it is made once more with less, and the client
// remembers that once the shorter one was answered: a refusal that less does not heal was about something else. The Response tells what was left out.
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
	window int64 // as the Model declares it; 0 when it does not
	scale  Scale

	mu sync.Mutex
	// told is the window as the provider said it when it refused a request and took a shorter one; 0 when it has not.
	told int64
	// ceiling is less than what the provider refused without saying its window, in tokens as they are estimated, when it
	// took less; 0 when it has not.
	ceiling int
}

// fitted is a request as it is sent.
type fitted struct {
	req       model.Request
	leftOut   int
	shortened int
	estimated int // tokens of all of it without the scale; 0 when not known
	size      int64
}

// Stream implements model.Client.
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
		if res, err = k.client.Stream(model.InTurn(ctx), f.req, emit); err != nil {
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

// Embed implements model.Embedder, where the client does.
func (k *keeper) Embed(ctx context.Context, texts []string) (*model.Embeddings, error) {
	e, err := model.EmbedderOf(k.client, k.name)
	if err != nil {
		return nil, err
	}
	return e.Embed(ctx, texts)
}

// bounds gives the window in tokens and how many tokens a request was refused with; 0 for what is not known.
func (k *keeper) bounds() (size int64, ceiling int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	size = k.window
	if k.told > 0 && (size == 0 || k.told < size) {
		size = k.told
	}
	return size, k.ceiling
}

// fit makes a request fit what is known of the window.
func (k *keeper) fit(req model.Request) (fitted, error) {
	size, ceiling := k.bounds()
	if size == 0 && ceiling == 0 {
		return k.whole(req), nil
	}
	beside := besides(&req)
	room := ceiling
	if size > 0 {
		room = k.room(size)
		if ceiling > 0 {
			room = min(room, ceiling)
		}
	}
	f, ok := k.fitTo(req, room-beside)
	f.estimated, f.size = f.estimated+beside, size
	if ok {
		return f, nil
	}
	factor := k.scale.Factor()
	most := int64(float64(room) * factor)
	if size > 0 && ceiling == 0 {
		most = size - answerRoom(size, &k.spec)
	}
	return f, tooLarge(k.name, &f.req, most, factor)
}

// room gives how many tokens, as they are estimated, a window has beside the answer.
func (k *keeper) room(size int64) int { return k.roomAt(size, k.scale.Factor()) }

func (k *keeper) roomAt(size int64, factor float64) int {
	return int(float64(size-answerRoom(size, &k.spec)) / factor)
}

// whole is a request with all that its session has.
func (k *keeper) whole(req model.Request) fitted {
	f := fitted{leftOut: req.SessionLeftOut}
	req.Messages = model.Without(req.Messages, req.SessionLeftOut)
	f.req = req
	return f
}

// fitTo makes the messages of a request fit a budget. What of them the provider's conversation has is left as it is; where
// that cannot be, it is begun anew. ok is false when the budget is not kept.
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

// fitMessages is Fit, for conversations without a system prompt too.
func fitMessages(messages []model.Message, budget int) Fitted {
	if len(messages) > 0 && messages[0].Role == model.RoleSystem {
		return Fit(messages, budget, Message)
	}
	none := model.Message{Role: model.RoleSystem}
	f := Fit(slices.Insert(slices.Clone(messages), 0, none), budget+Message(&none), Message)
	f.Messages, f.Tokens = f.Messages[1:], f.Tokens-Message(&none)
	return f
}

func besides(req *model.Request) int { return Tools(req.Tools) + Text(string(req.Schema)) }

// answerRoom is how many tokens of a window are kept free for the answer: what it may have at most, but no more than half
// of the window.
func answerRoom(size int64, m *skeinv1.ModelSpec) int64 {
	half := size / 2
	switch {
	case m.Options != nil && m.Options.MaxTokens != nil:
		return min(int64(*m.Options.MaxTokens), half)
	case m.Capabilities != nil && m.Capabilities.MaxOutputTokens > 0:
		return min(m.Capabilities.MaxOutputTokens, half)
	}
	return min(4096, half/2)
}

// tooLong gives the error by which a provider refuses what it cannot read; nil for others.
func tooLong(err error) *model.Error {
	var e *model.Error
	if errors.As(err, &e) && e.Code == model.CodeContextLength {
		return e
	}
	return nil
}

// lesson is what a refusal says of the model, if it was about the length: which shows when less is not refused.
type lesson struct {
	told      int64 // the window; 0 when it does not say
	ceiling   int   // 0 when it says nothing of one
	estimated int   // tokens of what was refused, and
	counted   int64 // as the provider counted them; 0 when it does not say, or nothing is to be learned from it
}

// remember takes a lesson in.
func (k *keeper) remember(l lesson) {
	k.scale.Learn(l.estimated, l.counted)
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.told > 0 {
		k.told = l.told
	}
	if l.ceiling > 0 && (k.ceiling == 0 || l.ceiling < k.ceiling) {
		k.ceiling = l.ceiling
	}
}

// less makes a request that was refused smaller; ok is false when there is nothing that can be left out. What the
// refusal teaches is used, but not remembered.
func (k *keeper) less(req model.Request, refused fitted, e *model.Error) (f fitted, l lesson, ok bool) {
	tokens := refused.estimated
	if tokens == 0 {
		tokens = besides(&refused.req)
		for i := range refused.req.Messages {
			tokens += Message(&refused.req.Messages[i])
		}
	}
	room := tokens / 2 // by how much it is too long is not known, and there is one try
	size, _ := k.bounds()
	if e.Limit >= smallestWindow {
		l.told, l.estimated = e.Limit, tokens
		if !pictured(&refused.req) {
			l.counted = e.Counted
		}
		if size = e.Limit; k.window > 0 {
			size = min(size, k.window)
		}
		room = min(k.roomAt(size, k.scale.FactorWith(l.estimated, l.counted)), tokens*9/10)
	} else if e.Status != http.StatusRequestEntityTooLarge { // which is about bytes
		l.ceiling = tokens * 9 / 10
	}
	req.Session, req.SessionMessages, req.SessionLeftOut = "", 0, 0 // what the provider keeps is part of what is too long
	beside := besides(&req)
	f, ok = k.fitTo(req, room-beside)
	f.estimated += beside
	f.size = size
	return f, l, ok || f.estimated < tokens
}

// smallestWindow is less than any model has: a provider that names a smaller one speaks of something else.
const smallestWindow = 256

// advised is a refusal with what can be done about it.
func advised(e *model.Error) *model.Error {
	out := *e
	out.Message += "; what it was asked cannot be made shorter: " + remedies
	return &out
}

const remedies = "say less at once, keep large data in files, let tools give shorter results, offer fewer tools, or use a model with a larger window (spec.capabilities.contextWindow)"

// tooLarge says what of a request that does not fit is the largest, and what to do.
func tooLarge(name string, req *model.Request, most int64, factor float64) *model.Error {
	tools := besides(req)
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
		what = fmt.Sprintf("a message of about %d tokens is most of it: shorten it, or attach what is large as a file, of which tools can read parts", say(newest))
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

// learn takes in what the provider counted. Images cost what they cost: nothing is to be learned from them.
func (k *keeper) learn(f fitted, res *model.Response) {
	if f.estimated > 0 && res.Usage != nil && res.Session == "" && !pictured(&f.req) {
		k.scale.Learn(f.estimated, res.Usage.InputTokens)
	}
}
