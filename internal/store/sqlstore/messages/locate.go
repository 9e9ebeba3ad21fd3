package messages

import (
	"github.com/skein-dev/skein/internal/store"
	"github.com/skein-dev/skein/internal/store/sqlstore/queries"
	"github.com/skein-dev/skein/internal/store/sqlstore/txn"
)

// place is where a page begins: skip messages of the query after the sequence number seq.
type place struct{ seq, skip int64 }

// maxSkip is how many entries of the index a page skips before it looks for a nearer row of message_block.
func maxSkip() int64 { return txn.BlockSeqs + txn.BlockSeqs/2 }

// probes is the number of guesses by proportion. After them, the range is halved each time.
const probes = 4

// search is a range of one thread's rows of message_block in which a position is searched.
type search struct {
	thread   int64
	from     txn.Block // the position is not before this row
	to       int64     // the position is not after this sequence number
	total    int64     // number of the query's messages up to there
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
		if n < p.count(edge.Counts) {
			return p.locateInherited(search{thread: p.key, to: p.base - 1, total: p.count(edge.Counts), fewLeft: true, position: n})
		}
		own.from = *edge
	}
	at, err := p.narrow(own)
	return place{at.At, n - p.count(at.Counts)}, err
}

// locateInherited finds the segment of a position by the rows at the segments' edges, and then searches in its source.
func (p *pager) locateInherited(edges search) (place, error) {
	at, err := p.narrow(edges)
	if err != nil {
		return place{}, err
	}
	s, err := scanSegment(p.One(p.ctx, queries.NextSegment, p.key, at.At))
	if err != nil {
		return place{}, err
	}
	lo := max(s.Lo, at.At)
	start, err := countTo(p.ctx, p, s.Source, lo)
	if err != nil {
		return place{}, err
	}
	end, err := countTo(p.ctx, p, s.Source, s.Hi)
	if err != nil {
		return place{}, err
	}
	n := edges.position - p.count(at.Counts) + p.count(start)
	at, err = p.narrow(search{thread: s.Source, from: txn.Block{At: lo, Counts: start}, to: s.Hi, total: p.count(end), maxSkip: maxSkip(), position: n})
	return place{at.At, n - p.count(at.Counts)}, err
}

// narrow finds the last row before a position, or one close enough, by guessing in proportion.
func (p *pager) narrow(s search) (txn.Block, error) {
	from, low, high := s.from, s.from.At, s.to // there is no row between from and low
	for probe := 0; s.position-p.count(from.Counts) > s.maxSkip && low < high; probe++ {
		guess := (low + high + 1) / 2
		switch done := p.count(from.Counts); {
		case s.fewLeft && probe == 0:
			guess = high
		case !s.fewLeft && probe < probes && s.total > done:
			guess = low + int64(float64(high-low)*float64(s.position-done-txn.BlockSeqs/2)/float64(s.total-done))
			guess = min(max(guess, low+1), high)
		}
		row, err := blockFloor(p.ctx, p, s.thread, guess)
		if err != nil {
			return txn.Block{}, err
		}
		switch {
		case row.At <= low:
			low = guess
		case p.count(row.Counts) <= s.position:
			from, low = *row, guess
		default:
			high, s.total = row.At-1, p.count(row.Counts)
		}
	}
	return from, nil
}

// count returns how many of the counted messages the query selects.
func (p *pager) count(c txn.Counts) int64 {
	return c.Total(p.q.IncludeSilent, p.q.MaxDepth, p.q.AllDepths)
}

// everything selects all messages.
var everything = store.MessageQuery{IncludeSilent: true, AllDepths: true}
