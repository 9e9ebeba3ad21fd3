package app

import (
	"strings"

	"github.com/go-logr/logr"
	"go.uber.org/zap/zapcore"
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
