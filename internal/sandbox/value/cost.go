package value

import "fmt"

// What a decoded value takes in memory, in bytes. The figures are those of a 64-bit Go program, rounded up: an
// interface is two words, a map of up to eight names is one group of slots, and a larger one is at least half full.
const (
	costSlot     = 16  // an interface, as a member of an array
	costNumber   = 8   // a boxed float64, a string's or a slice's share of an allocation
	costHeader   = 24  // a slice or a string with its rounding
	costObject   = 48  // an empty map
	costGroup    = 272 // the slots of a map of one to eight names
	costProperty = 72  // each further name of a larger map
	costDate     = 24
)

// MaxCost is the most memory that one decoded value may take.
const MaxCost = 64 << 20

// ErrTooLarge means that a value is well formed, but would take more memory than MaxCost.
var ErrTooLarge = fmt.Errorf("decoded, the value would take more than %d MiB of memory: send less at once", MaxCost>>20)

// CheckCost returns the cost of b, and ErrTooLarge when it exceeds MaxCost.
func CheckCost(b []byte) (int64, error) {
	n, err := Cost(b)
	if err == nil && n > MaxCost {
		err = ErrTooLarge
	}
	return n, err
}

// Cost returns how many bytes of memory Decode would need for b, without decoding it. Small values can need seventy
// times their encoded size: {a: null} is five bytes on the wire and more than three hundred as a map. The error is the
// one that Decode would return for the structure; texts are not checked.
func Cost(b []byte) (int64, error) {
	r := NewReader(b)
	r.Funcs = true
	return r.cost(0)
}

func (r *Reader) cost(depth int) (int64, error) {
	if depth > MaxDepth {
		return 0, malformed("nested deeper than %d levels", MaxDepth)
	}
	t, err := r.Tag()
	if err != nil {
		return 0, err
	}
	switch t {
	case TagUndefined, TagNull, TagFalse, TagTrue:
		return 0, nil
	case TagInt:
		_, err := r.Integer()
		return costNumber, err
	case TagFloat:
		_, err := r.Float()
		return costNumber, err
	case TagDate:
		_, err := r.Int()
		return costDate, err
	case TagFunc:
		_, err := r.Func()
		return costNumber, err
	case TagString, TagBytes:
		b, err := r.Span()
		return costHeader + int64(len(b)), err
	case TagBigInt:
		n, err := r.BigInt()
		if err != nil {
			return 0, err
		}
		return costHeader + costDate + int64(n.BitLen()/8), nil
	case TagArray, TagSet:
		n, err := r.Count(1)
		return r.members(depth, n, costHeader+costSlot*int64(n), err)
	case TagMap:
		n, err := r.Count(2)
		return r.members(depth, 2*n, costHeader+2*costSlot*int64(n), err)
	case TagObject:
		return r.properties(depth)
	}
	return 0, malformed("unknown tag %d", t)
}

// members adds the cost of n values to sum.
func (r *Reader) members(depth, n int, sum int64, err error) (int64, error) {
	for range n {
		if err != nil {
			return 0, err
		}
		var c int64
		c, err = r.cost(depth + 1)
		sum += c
	}
	return sum, err
}

func (r *Reader) properties(depth int) (int64, error) {
	n, err := r.Count(2)
	if err != nil {
		return 0, err
	}
	sum := int64(costObject)
	if n > 0 {
		sum += costGroup
	}
	if n > 8 {
		sum += costProperty * int64(n)
	}
	for range n {
		name, err := r.Span()
		if err != nil {
			return 0, err
		}
		c, err := r.cost(depth + 1)
		if err != nil {
			return 0, err
		}
		sum += c + costHeader + int64(len(name))
	}
	return sum, nil
}
