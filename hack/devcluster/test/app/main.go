// App is the program that the tests run in pods: one static binary that serves, requests, resolves, holds a
// connection or uses memory.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		args = []string{"serve", "8080"}
	}
	switch args[0] {
	case "serve": // PORT...: HTTP on each
		return serve(args[1:])
	case "get": // URL [TIME TO CONNECT]
		connect := "1500ms"
		if len(args) > 2 {
			connect = args[2]
		}
		return get(args[1], connect)
	case "resolve": // NAME
		a, err := net.DefaultResolver.LookupHost(context.Background(), args[1])
		fmt.Println(a)
		return err
	case "hold": // HOST:PORT: sends a line every 50 ms and prints each answer, until one does not come within 5 s
		return hold(args[1])
	case "eat": // MIB
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		return eat(n)
	}
	return fmt.Errorf("unknown command %q", args[0])
}

func serve(ports []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	host, _ := os.Hostname()
	errs := make(chan error, len(ports)+1)
	for _, p := range ports {
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello from %s:%s\n", host, p) })
		go func() { errs <- http.ListenAndServe(":"+p, h) }()
	}
	go func() { errs <- echo(":7") }()
	fmt.Println("serving as", host, "uid", os.Getuid())
	select {
	case <-ctx.Done():
		fmt.Println("bye")
		return nil
	case err := <-errs:
		return err
	}
}

// echo returns what it receives.
func echo(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, c)
		}()
	}
}

func get(url, connect string) error {
	d, err := time.ParseDuration(connect)
	if err != nil {
		return err
	}
	// The kernel accepts the connection if it is allowed; the server behind it may be busy.
	dialer := &net.Dialer{Timeout: d}
	c := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	r, err := c.Get(url)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	_, err = io.Copy(os.Stdout, r.Body)
	return err
}

func hold(addr string) error {
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return err
	}
	b := make([]byte, 2)
	for {
		if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
			return err
		}
		if _, err := c.Write([]byte("x\n")); err != nil {
			return fmt.Errorf("cut: %w", err)
		}
		if _, err := io.ReadFull(c, b); err != nil {
			return fmt.Errorf("cut: %w", err)
		}
		fmt.Println("alive")
		time.Sleep(50 * time.Millisecond)
	}
}

func eat(mib int) error {
	var kept [][]byte
	for range mib {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		kept = append(kept, b)
	}
	fmt.Println("ate", len(kept), "MiB")
	return nil
}
