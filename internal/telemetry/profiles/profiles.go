// Package profiles serves Go profiles of a process. Profiles show memory, and there is no authentication, so only the loopback interface
// has them (docs/adr/0061-metrics-and-traces.md).
package profiles

import (
	"errors"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"time"
)

// Check returns an error for an address that is not of the loopback interface.
func Check(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().IsLoopback() {
		return errors.New("give an address of the loopback interface, such as 127.0.0.1:6060: profiles show memory, and are served without authentication")
	}
	return nil
}

// Server returns the server. A profile lasts as long as its reader asked for, so there is no limit of time for answers.
func Server() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
}
