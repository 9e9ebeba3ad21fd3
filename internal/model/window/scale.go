package window

import "sync"

const (
	// unknown is by how much estimates are raised while nothing is known of a model, margin once something is.
	unknown, margin = 1.10, 1.03
	// An estimate of less says little: what surrounds the messages outweighs them.
	enough = 200
	// The provider's count is no more than so many times off, either way; what is more is a mistake of somebody's.
	most = 4.0
)

// Scale learns by how much the estimates for a model are off. The zero Scale knows nothing. It is safe for
// concurrent use.
type Scale struct {
	mu    sync.Mutex
	ratio float64 // counted by the provider for each token estimated; 0 for not known
}

// Learn takes in what the provider counted for a request that had been estimated, without Factor, at so much. What is
// more than was thought counts at once, what is less little by little: to be told off by the provider costs a turn, to
// leave a message out too early does not.
func (s *Scale) Learn(estimated int, counted int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ratio = learned(s.ratio, estimated, counted)
}

// Factor is what estimates are to be multiplied with.
func (s *Scale) Factor() float64 { return s.FactorWith(0, 0) }

// FactorWith is what Factor would be after Learn, without learning it.
func (s *Scale) FactorWith(estimated int, counted int64) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	ratio := learned(s.ratio, estimated, counted)
	if ratio == 0 {
		return unknown
	}
	return ratio * margin
}

// learned is what a ratio becomes by what the provider counted.
func learned(ratio float64, estimated int, counted int64) float64 {
	if estimated < enough || counted <= 0 {
		return ratio
	}
	now := min(max(float64(counted)/float64(estimated), 1/most), most)
	if ratio == 0 || now > ratio {
		return now
	}
	return ratio + (now-ratio)/4
}
