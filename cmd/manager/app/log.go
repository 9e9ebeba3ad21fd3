package app

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// newLogger returns a structured logger that writes to standard error.
func newLogger(format, level string) logr.Logger {
	levels := map[string]zapcore.Level{"error": zapcore.ErrorLevel, "info": zapcore.InfoLevel, "debug": zapcore.DebugLevel}
	encoder := zap.JSONEncoder()
	if format == "text" {
		encoder = zap.ConsoleEncoder()
	}
	return zap.New(zap.Level(levels[level]), encoder)
}

// useLogger makes the libraries use the same logger.
func useLogger(l logr.Logger) {
	ctrl.SetLogger(l)
	klog.SetLogger(l.WithName("kubernetes"))
	logAborts.Do(func() { utilruntime.ErrorHandlers[0] = withoutAborts(utilruntime.ErrorHandlers[0]) })
}

// logAborts changes how the libraries log errors, once for the process.
var logAborts sync.Once

// What the API server's library says of a request whose client has gone, or whose handler ended after it.
const (
	aborted     = "Timeout or abort while handling"
	postTimeout = "Post-timeout activity"
)

// withoutAborts logs requests whose clients have gone at the level debug, and without a stack. The API server makes five requests at a time
// to find out whether the runtime API answers, and drops four of them, so there are many, and nothing is wrong.
func withoutAborts(next utilruntime.ErrorHandler) utilruntime.ErrorHandler {
	return func(ctx context.Context, err error, msg string, keysAndValues ...any) {
		if unanswered(err) || err == nil && (msg == aborted || msg == postTimeout && !panicked(keysAndValues)) {
			if err != nil {
				keysAndValues = append(keysAndValues, "error", err.Error())
			}
			klog.FromContext(ctx).V(1).Info("A client left before its answer", keysAndValues...)
			return
		}
		next(ctx, err, msg, keysAndValues...)
	}
}

// unanswered reports whether an error says that an answer could not be written, because its client has gone or its time was over. The
// client has been told of the latter.
func unanswered(err error) bool {
	// The error of a closed stream has no name in net/http.
	return errors.Is(err, http.ErrHandlerTimeout) || err != nil && strings.HasSuffix(err.Error(), ": http2: stream closed")
}

// panicked reports whether a handler that ended after its time did so with a panic, which is the value of "result".
func panicked(keysAndValues []any) bool {
	for i := 0; i+1 < len(keysAndValues); i += 2 {
		if keysAndValues[i] == "result" {
			return keysAndValues[i+1] != nil
		}
	}
	return false
}

// rejected is what the library for Events says of one that the API server has refused.
const rejected = "Server rejected event (will not retry!)"

// lostEvents is a log sink that logs Events for a namespace that is being deleted at the level debug. The API server refuses them, and each
// deletion of a namespace with threads makes some. Other Events that the API server refuses are logged as errors.
type lostEvents struct{ logr.LogSink }

// Error implements logr.LogSink.
func (s lostEvents) Error(err error, msg string, keysAndValues ...any) {
	if msg != rejected || !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) && !noNamespace(err) {
		s.LogSink.Error(err, msg, keysAndValues...)
		return
	}
	if s.Enabled(1) {
		s.Info(1, "An Event was not written, because its namespace is being deleted", append(keysAndValues, "error", err.Error())...)
	}
}

// noNamespace reports whether an error says that a namespace does not exist.
func noNamespace(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
}

// WithName implements logr.LogSink.
func (s lostEvents) WithName(name string) logr.LogSink { return lostEvents{s.LogSink.WithName(name)} }

// WithValues implements logr.LogSink.
func (s lostEvents) WithValues(keysAndValues ...any) logr.LogSink {
	return lostEvents{s.LogSink.WithValues(keysAndValues...)}
}

// logWriter writes the output of other programs to the log, line by line.
type logWriter struct{ logr.Logger }

// Write implements io.Writer.
func (w logWriter) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		if line = strings.TrimSpace(line); line != "" {
			w.Info(line)
		}
	}
	return len(p), nil
}
