package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// realModel is a model that replaces the scripts of the demo.
type realModel struct {
	baseURL, id, key string
}

// modelFromEnv reads MODEL_BASE_URL, MODEL and MODEL_API_KEY. It returns nil when none of them is set.
func modelFromEnv(get func(string) string) (*realModel, error) {
	m := &realModel{baseURL: get("MODEL_BASE_URL"), id: get("MODEL"), key: get("MODEL_API_KEY")}
	if m.baseURL == "" && m.id == "" && m.key == "" {
		return nil, nil
	}
	if m.baseURL == "" {
		return nil, errors.New("MODEL_BASE_URL is missing: the base URL of an OpenAI-compatible API, such as https://api.openai.com/v1")
	}
	if u, err := url.Parse(m.baseURL); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("MODEL_BASE_URL %q is not a URL such as https://api.openai.com/v1", m.baseURL)
	}
	if m.id == "" {
		return nil, errors.New("MODEL is missing: the id of a model that MODEL_BASE_URL knows")
	}
	return m, nil
}

// host returns the host of the model's URL.
func (m *realModel) host() string {
	u, err := url.Parse(m.baseURL)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// onLoopback reports whether the model is on this machine's loopback, where pods cannot reach it.
func (m *realModel) onLoopback() bool {
	u, err := url.Parse(m.baseURL)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || strings.HasSuffix(u.Hostname(), ".localhost") || (ip != nil && ip.IsLoopback())
}

// manifests returns the Models of the samples with the real model instead of the script, and the Secret with its key.
func (m *realModel) manifests() (string, error) {
	spec := map[string]any{"provider": "openai", "model": m.id, "endpoint": m.baseURL, "timeout": "180s"}
	var items []any
	if m.key != "" {
		items = append(items, map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "model"},
			"stringData": map[string]any{"apiKey": m.key},
		})
		spec["credentials"] = map[string]any{"secretKeyRef": map[string]any{"name": "model", "key": "apiKey"}}
	}
	for _, name := range []string{"analyst", "auditor"} {
		items = append(items, map[string]any{
			"apiVersion": "skein.dev/v1alpha1", "kind": "Model", "metadata": map[string]any{"name": name}, "spec": spec,
		})
	}
	b, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	return string(b), err
}
