// Command probe tells from inside a pod what can be reached, and on what it runs. It prints one line for each
// address given, "tcp 10.0.0.1:443 open" or "… closed: why", and ends; with "await" first, it gives each address a
// minute to open. With "kernel" it prints the kernel's
// version, its messages, and what it says of filters of system calls.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "serve" {
		if err := serve(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 2 && os.Args[1] == "kernel" {
		kernel()
		return
	}
	targets, patience := os.Args[1:], time.Duration(0)
	if len(targets) > 0 && targets[0] == "await" {
		targets, patience = targets[1:], time.Minute
	}
	for _, target := range targets {
		kind, addr, _ := strings.Cut(target, "=")
		began := time.Now()
		err := try(kind, addr)
		for err != nil && time.Since(began) < patience {
			time.Sleep(100 * time.Millisecond)
			err = try(kind, addr)
		}
		if err != nil {
			fmt.Printf("%s %s closed: %v\n", kind, addr, err)
		} else {
			fmt.Printf("%s %s open\n", kind, addr)
		}
	}
}

// kernel prints what the kernel says of itself. gVisor answers all of it with its own words.
func kernel() {
	version, err := os.ReadFile("/proc/version")
	fmt.Printf("version: %s %v\n", strings.TrimSpace(string(version)), err)
	const readAll = 3
	messages := make([]byte, 64<<10)
	n, err := syscall.Klogctl(readAll, messages)
	fmt.Printf("messages: %v\n%s\n", err, messages[:max(n, 0)])
	status, err := os.ReadFile("/proc/self/status")
	fmt.Printf("status: %v\n%s\n", err, status)
}

// serve is a neighbour that a sandbox must not reach.
func serve() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	s := &http.Server{Addr: ":8080", ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "hello") })}
	go func() { <-ctx.Done(); _ = s.Close() }()
	if err := s.ListenAndServe(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

func try(kind, addr string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if kind == "dns" { // addr is server/name
		server, name, _ := strings.Cut(addr, "/")
		r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, server)
		}}
		_, err := r.LookupHost(ctx, name)
		return err
	}
	c, err := (&net.Dialer{}).DialContext(ctx, kind, addr)
	if err != nil {
		return err
	}
	return c.Close()
}
