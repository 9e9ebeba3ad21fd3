package txn

// Fact is something about the whole database that the only writer remembers rather than reads again. What changes it must call ForgetFact in the
// same transaction.
type Fact int

// HasWebhooks is whether there are webhooks.
const HasWebhooks Fact = iota

// facts are what a writer remembers about the whole database. They are forgotten when a transaction fails: what was read in it may have been undone.
type facts map[Fact]bool

// Fact returns what is remembered, or else asks and, where that is safe, remembers the answer.
func (t *Tx) Fact(f Fact, ask func() (bool, error)) (bool, error) {
	s, sole := t.session.(*serialSession)
	if sole {
		if known, ok := s.facts[f]; ok {
			return known, nil
		}
	}
	is, err := ask()
	if sole && err == nil {
		s.facts[f] = is
	}
	return is, err
}

// ForgetFact makes later transactions, and the rest of this one, ask again.
func (t *Tx) ForgetFact(f Fact) {
	if s, sole := t.session.(*serialSession); sole {
		delete(s.facts, f)
	}
}
