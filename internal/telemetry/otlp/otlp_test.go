package otlp

import "testing"

func TestTracesURL(t *testing.T) {
	for endpoint, want := range map[string]string{
		"http://collector:4318":            "http://collector:4318/v1/traces",
		"http://collector:4318/":           "http://collector:4318/v1/traces",
		"https://c.example/otlp":           "https://c.example/otlp/v1/traces",
		"https://c.example/otlp/v1/traces": "https://c.example/otlp/v1/traces",
	} {
		if got := tracesURL(endpoint); got != want {
			t.Errorf("%s becomes %s, not %s", endpoint, got, want)
		}
	}
}

func TestConfigured(t *testing.T) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_SDK_DISABLED"} {
		t.Setenv(name, "")
	}
	if on, err := Configured(""); on || err != nil {
		t.Errorf("without an endpoint: %t, %v", on, err)
	}
	if on, err := Configured("http://c:4318"); !on || err != nil {
		t.Errorf("with a flag: %t, %v", on, err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")
	if on, err := Configured(""); !on || err != nil {
		t.Errorf("with the variable: %t, %v", on, err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
	if _, err := Configured(""); err == nil {
		t.Error("a protocol that does not exist is taken")
	}
	t.Setenv("OTEL_SDK_DISABLED", "true")
	if on, err := Configured(""); on || err != nil {
		t.Errorf("switched off: %t, %v", on, err)
	}
}
