package sqlstore

import "github.com/skein-dev/skein/internal/store"

// place is where a page begins: skip messages of the query after the sequence number seq.
type place struct{ seq, skip int64 }

// maxSkip is how many entries of the index a page skips before it looks for a nearer row of message_block.
func maxSkip() int64 { return blockSeqs + blockSeqs/2 }

// probes is the number of guesses by proportion. After them, the range is halved each time.
const probes = 4

// search is a range of one thread's rows of message_block in which a position is searched.
type search struct {
	thread   int64
	from     block // the position is not before this row
	to       int64 // the position is not after this sequence number
	total    int64 // number of the query's messages up to there
	maxSkip  int64
	fewLeft  bool // the range may have no row at all
	position int64
}

// locate finds the place that follows n of the query's messages, out of total.
func (p *pager) locate(n, total int64) (place, error) {
	own := search{thread: p.key, to: p.lastSeq, total: total, maxSkip: maxSkip(), position: n}
	if p.base > 0 {
		edge, err := blockFloor(p.ctx, p, p.key, p.base)
		if err != nil {
			return place{}, err
		}
		if n < p.count(edge.counts) {
			return p.locateInherited(search{thread: p.key, to: p.base - 1, total: p.count(edge.counts), fewLeft: true, position: n})
		}
		own.from = *edge
	}
	at, err := p.narrow(own)
	return place{at.at, n - p.count(at.counts)}, err
}

// locateInherited finds the segment of a position by the rows at the segments' edges, and then searches in its source.
func (p *pager) locateInherited(edges search) (place, error) {
	at, err := p.narrow(edges)
	if err != nil {
		return place{}, err
	}
	s, err := scanSegment(p.one(p.ctx, qNextSegment, p.key, at.at))
	if err != nil {
		return place{}, err
	}
	lo := max(s.lo, at.at)
	start, err := countTo(p.ctx, p, s.source, lo)
	if err != nil {
		return place{}, err
	}
	end, err := countTo(p.ctx, p, s.source, s.hi)
	if err != nil {
		return place{}, err
	}
	n := edges.position - p.count(at.counts) + p.count(start)
	at, err = p.narrow(search{thread: s.source, from: block{lo, start}, to: s.hi, total: p.count(end), maxSkip: maxSkip(), position: n})
	return place{at.at, n - p.count(at.counts)}, err
}

// narrow finds the last row before a position, or one close enough, by guessing in proportion.
func (p *pager) narrow(s search) (block, error) {
	from, low, high := s.from, s.from.at, s.to // there is no row between from and low
	for probe := 0; s.position-p.count(from.counts) > s.maxSkip && low < high; probe++ {
		guess := (low + high + 1) / 2
		switch done := p.count(from.counts); {
		case s.fewLeft && probe == 0:
			guess = high
		case !s.fewLeft && probe < probes && s.total > done:
			guess = low + int64(float64(high-low)*float64(s.position-done-blockSeqs/2)/float64(s.total-done))
			guess = min(max(guess, low+1), high)
		}
		row, err := blockFloor(p.ctx, p, s.thread, guess)
		if err != nil {
			return block{}, err
		}
		switch {
		case row.at <= low:
			low = guess
		case p.count(row.counts) <= s.position:
			from, low = *row, guess
		default:
			high, s.total = row.at-1, p.count(row.counts)
		}
	}
	return from, nil
}

// count returns how many of the counted messages the query selects.
func (p *pager) count(c counts) int64 {
	return c.total(p.q.IncludeSilent, p.q.MaxDepth, p.q.AllDepths)
}

// everything selects all messages.
var everything = store.MessageQuery{IncludeSilent: true, AllDepths: true}
