package main

import (
	"encoding/csv"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// sumOrders adds up the paid orders of a CSV in whole cents, without using Skein. The agent's answer must contain
// this figure.
func sumOrders(file string) (total string, orders int, err error) {
	in, err := os.Open(file)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = in.Close() }()
	rows, err := csv.NewReader(in).ReadAll()
	if err != nil {
		return "", 0, fmt.Errorf("%s: %w", file, err)
	}
	if len(rows) == 0 {
		return "", 0, fmt.Errorf("%s is empty", file)
	}
	column := map[string]int{}
	for _, name := range []string{"quantity", "unit_price", "status"} {
		if column[name] = slices.Index(rows[0], name); column[name] < 0 {
			return "", 0, fmt.Errorf("%s has no column %s", file, name)
		}
	}
	var cents int64
	for i, r := range rows[1:] {
		if r[column["status"]] != "paid" {
			continue
		}
		n, err := strconv.ParseInt(r[column["quantity"]], 10, 64)
		if err != nil {
			return "", 0, fmt.Errorf("%s, line %d: %w", file, i+2, err)
		}
		whole, fraction, _ := strings.Cut(r[column["unit_price"]], ".")
		price, err := strconv.ParseInt(whole+(fraction + "00")[:2], 10, 64)
		if err != nil {
			return "", 0, fmt.Errorf("%s, line %d: %w", file, i+2, err)
		}
		cents += n * price
	}
	return fmt.Sprintf("%d.%02d", cents/100, cents%100), len(rows) - 1, nil
}

// contains reports whether a text has the figure, whatever separates its thousands.
func contains(text, figure string) bool {
	plain := strings.NewReplacer(",", "", "'", "", "\u2019", "", "\u00a0", "", "\u202f", "", " ", "", "_", "").Replace(text)
	return strings.Contains(plain, figure)
}
