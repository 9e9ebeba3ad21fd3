package console

// ThreadRow is what a list shows of a Thread. Times are in milliseconds since 1970.
type ThreadRow struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	ID        string `json:"id"`
	Title     string `json:"title"`
	Agent     string `json:"agent"`
	User      string `json:"user"`
	State     string `json:"state"`
	Waits     *Wait  `json:"waits"`
	Outcome   string `json:"outcome"`
	Reason    string `json:"reason"`
	Messages  int64  `json:"messages"`
	Queued    int64  `json:"queued"`
	Parent    string `json:"parent"`
	Reference string `json:"reference"`
	Archived  bool   `json:"archived"`
	Active    int64  `json:"active"`
	Created   int64  `json:"created"`
}

// Wait says what a thread waits for.
type Wait struct {
	Reason      string `json:"reason"`
	Message     string `json:"message"`
	NeedsPerson bool   `json:"needsPerson"`
}

// EffectRow is what a list shows of a ScheduledEffect. Times are in milliseconds since 1970; 0 is none.
type EffectRow struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Thread    string `json:"thread"`
	Does      string `json:"does"`
	Schedule  string `json:"schedule"`
	Next      int64  `json:"next"`
	Last      int64  `json:"last"`
	Outcome   string `json:"outcome"`
	Phase     string `json:"phase"`
	Suspended bool   `json:"suspended"`
	Ended     bool   `json:"ended"`
	Active    int32  `json:"active"`
	Ready     bool   `json:"ready"`
	Reason    string `json:"reason"`
	Message   string `json:"message"`
	Created   int64  `json:"created"`
}
