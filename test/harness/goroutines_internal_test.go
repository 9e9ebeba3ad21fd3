package harness

import "testing"

func TestWaiting(t *testing.T) {
	const dump = `goroutine 1 [running]:
main.main()
	main.go:3 +0x1d

goroutine 7 [select, 4 minutes]:
a.wait(0xc000010000, {0x1, 0x2})
	a/a.go:10 +0x45
created by a.Start in goroutine 1
	a/a.go:5 +0x11

goroutine 8 [chan receive]:
b.wait(...)
	b/b.go:1

goroutine 9 [select, 3 minutes]:
a.wait(0xc000020000, {0x3, 0x4})
	a/a.go:10 +0x45
created by a.Start in goroutine 2
	a/a.go:5 +0x11
`
	const want = `2 × select, 3 minutes
  a.wait
  a/a.go:10
  created by a.Start
  a/a.go:5
`
	if got := waiting(dump); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
