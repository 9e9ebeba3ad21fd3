// Command orders writes the orders for the demo and the samples as CSV. The same seed gives the same orders on every
// machine. `make generate` writes them to hack/demo/orders.csv.
package main

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"
)

const (
	seed  = 20260101
	count = 3200
)

var (
	regions  = []string{"Africa", "Americas", "Asia", "Europe", "Oceania"}
	products = []struct {
		name  string
		cents int64
	}{
		{"anvil", 12950}, {"compass", 2499}, {"hammock", 4995}, {"kettle", 3290},
		{"lantern", 1875}, {"rope", 990}, {"tent", 21900}, {"whistle", 345},
	}
	// One order in ten was cancelled, so that figures that ignore the status column are wrong.
	statuses = []string{"paid", "paid", "paid", "paid", "paid", "paid", "paid", "paid", "paid", "cancelled"}
)

func main() {
	out := bufio.NewWriter(os.Stdout)
	write(out)
	if err := out.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

func write(out io.Writer) {
	r := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // the same orders each time is what is wanted
	day := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	_, _ = fmt.Fprintln(out, "order_id,date,region,product,quantity,unit_price,status")
	for i := range count {
		p := products[r.IntN(len(products))]
		// Prices vary by up to a tenth, as over a year.
		cents := p.cents + p.cents*int64(r.IntN(21)-10)/100
		_, _ = fmt.Fprintf(out, "%d,%s,%s,%s,%d,%d.%02d,%s\n", 100001+i,
			day.AddDate(0, 0, i*365/count).Format(time.DateOnly),
			regions[r.IntN(len(regions))], p.name, 1+r.IntN(12), cents/100, cents%100,
			statuses[r.IntN(len(statuses))])
	}
}
