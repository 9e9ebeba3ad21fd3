package window

import "sync"

const (
	// unknown is the factor for estimates while nothing is known about a model; margin is the extra factor once
	// something is.
	unknown, margin = 1.10, 1.03
	// An estimate below enough says little, because the overhead around the messages outweighs them.
	enough = 200
	// The provider's count differs from an estimate at most by this factor, either way. A larger difference is an
	// error.
	most = 4.0
)

// Scale learns how far the estimates for a model are off. The zero Scale knows nothing. It is safe for concurrent use.
type Scale struct {
	mu    sync.Mutex
	ratio float64 // tokens counted by the provider for each token estimated; 0 when unknown
}

// Learn takes in the provider's count for a request with the given estimate, without Factor. A count above the estimate
// applies at once; a lower count applies little by little. A refusal by the provider costs a turn, but leaving out a
// message too early does not.
func (s *Scale) Learn(estimated int, counted int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ratio = learned(s.ratio, estimated, counted)
}

// Factor returns what to multiply an estimate with to get the tokens that the provider will count: the learned ratio, with a margin.
func (s *Scale) Factor() float64 { return s.FactorWith(0, 0) }

// FactorWith returns what Factor would be after Learn, without learning.
func (s *Scale) FactorWith(estimated int, counted int64) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	ratio := learned(s.ratio, estimated, counted)
	if ratio == 0 {
		return unknown
	}
	return ratio * margin
}

// learned returns the ratio after a count of the provider.
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
