package model

import (
	"fmt"
	"math/big"
	"strings"

	skeinv1 "github.com/skein-dev/skein/api/v1alpha1"
)

// Cost is an amount in billionths of a US dollar, so that sums are exact. In JSON it is a decimal number of dollars:
// 0.00125.
type Cost int64

const nano = 9 // digits after the point

// String returns dollars as a decimal number.
func (c Cost) String() string {
	sign, n := "", int64(c)
	if n < 0 {
		sign, n = "-", -n
	}
	digits := fmt.Sprintf("%0*d", nano+1, n)
	whole, rest := digits[:len(digits)-nano], strings.TrimRight(digits[len(digits)-nano:], "0")
	if rest != "" {
		rest = "." + rest
	}
	return sign + whole + rest
}

// ParseCost parses a decimal number of dollars. It rounds to a billionth.
func ParseCost(text string) (Cost, error) {
	r, ok := new(big.Rat).SetString(text)
	if !ok || strings.ContainsAny(text, "/_xXpP") {
		return 0, fmt.Errorf("%q is not a decimal number", text)
	}
	return rounded(r.Mul(r, big.NewRat(1_000_000_000, 1)))
}

// MarshalJSON implements json.Marshaler.
func (c Cost) MarshalJSON() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalJSON implements json.Unmarshaler.
func (c *Cost) UnmarshalJSON(data []byte) (err error) {
	*c, err = ParseCost(string(data))
	return err
}

func rounded(r *big.Rat) (Cost, error) {
	// Half up: floor(r + 1/2).
	r = new(big.Rat).Add(r, big.NewRat(1, 2))
	n := new(big.Int).Div(r.Num(), r.Denom())
	if !n.IsInt64() {
		return 0, fmt.Errorf("the amount is too large")
	}
	return Cost(n.Int64()), nil
}

// Price returns the cost of a usage. A missing price defaults to that of plain input. Without pricing the cost is zero.
func Price(p *skeinv1.ModelPricing, u Usage) (Cost, error) {
	if p == nil {
		return 0, nil
	}
	total := new(big.Rat)
	for _, part := range []struct {
		field, price string
		tokens       int64
	}{
		{"input", p.Input, max(u.InputTokens-u.CachedTokens-u.CacheWriteTokens, 0)},
		{"cachedInput", orElse(p.CachedInput, p.Input), u.CachedTokens},
		{"cacheWrite", orElse(p.CacheWrite, p.Input), u.CacheWriteTokens},
		{"output", p.Output, u.OutputTokens},
	} {
		if part.price == "" {
			continue
		}
		perMillion, err := ParseCost(part.price)
		if err != nil {
			return 0, fmt.Errorf("spec.pricing.%s: %w", part.field, err)
		}
		total.Add(total, new(big.Rat).Mul(big.NewRat(int64(perMillion), 1_000_000), big.NewRat(part.tokens, 1)))
	}
	return rounded(total)
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
