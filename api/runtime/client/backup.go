package client

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"k8s.io/client-go/rest"

	runtimev1 "github.com/skein-dev/skein/api/runtime/v1alpha1"
)

// Backup streams everything that is stored of a namespace, as a tar archive (K8S-09). runtimev1.BackupRowsPrefix says what is in it. An
// archive without the summary at its end is not whole.
func (c *Client) Backup(ctx context.Context, namespace string) (io.ReadCloser, error) {
	r, err := c.viewRequest(http.MethodGet, namespace, runtimev1.ViewBackups)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.Param("watch", "true").URL().String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "*/*")
	client := http.DefaultClient
	if s, ok := c.streams.(*rest.RESTClient); ok && s.Client != nil {
		client = s.Client
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, explain(err)
	}
	if resp.StatusCode < http.StatusMultipleChoices {
		return resp.Body, nil
	}
	defer func() { _ = resp.Body.Close() }()
	return nil, explain(statusOf(resp))
}

// Restore is the restore of one backup into one namespace. Every call can be repeated.
type Restore struct {
	client            *Client
	namespace, backup string
}

// Restore returns a handle on the restore of a backup. Making one sends no request.
func (c *Client) Restore(namespace, backup string) *Restore { return &Restore{c, namespace, backup} }

// Begin asks how far the restore has come. The error is one that IsConflict when threads of the backup are stored already, and one that
// IsInvalid when the backup cannot be restored here. It writes nothing.
func (r *Restore) Begin(ctx context.Context, plan runtimev1.RestorePlan) (*runtimev1.RestoreState, error) {
	plan.Backup = r.backup
	req, err := r.client.viewRequest(http.MethodPost, r.namespace, runtimev1.ViewRestores)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(plan)
	if err != nil {
		return nil, err
	}
	return getAs[runtimev1.RestoreState](ctx, req.Body(body))
}

// post sends a part of the restore.
func (r *Restore) post(ctx context.Context, below string, body []byte) error {
	req, err := r.client.viewRequest(http.MethodPost, r.namespace, runtimev1.ViewRestores, r.backup, below)
	if err != nil {
		return err
	}
	return get(ctx, req.Body(body), nil)
}

// Rows sends rows, as lines of JSON.
func (r *Restore) Rows(ctx context.Context, lines []byte) error { return r.post(ctx, "rows", lines) }

// Contents sends the contents of files with a digest. The rows of the files come first.
func (r *Restore) Contents(ctx context.Context, digest string, size int64, contents io.Reader) error {
	req, err := r.client.viewRequest(http.MethodPut, r.namespace, runtimev1.ViewRestores, r.backup, "contents", digest)
	if err != nil {
		return err
	}
	if size == 0 {
		contents = bytes.NewReader(nil)
	}
	req.Body(struct{ io.Reader }{contents}).MaxRetries(0).SetHeader("Content-Type", "application/octet-stream") // a stream cannot be sent twice
	return get(ctx, req, nil)
}

// Finish makes all threads visible at once, retained and without objects, unless rows or contents are missing.
func (r *Restore) Finish(ctx context.Context, rows map[string]int64) error {
	body, err := json.Marshal(runtimev1.RestoreFinish{Rows: rows})
	if err != nil {
		return err
	}
	return r.post(ctx, "finish", body)
}

// Effects assigns the restored firings of ScheduledEffects to their new objects. The error is one that IsConflict while a thread that has work of an
// effect is not adopted.
func (r *Restore) Effects(ctx context.Context, effects map[string]string) error {
	body, err := json.Marshal(runtimev1.RestoreEffects{Effects: effects})
	if err != nil {
		return err
	}
	return r.post(ctx, "effects", body)
}

// Abandon removes what is not visible yet.
func (r *Restore) Abandon(ctx context.Context) error {
	req, err := r.client.viewRequest(http.MethodDelete, r.namespace, runtimev1.ViewRestores, r.backup)
	if err != nil {
		return err
	}
	return get(ctx, req, nil)
}

// Orphans returns a page of the threads of a namespace whose object is gone although their data was not retained, by id. after is the
// id of the last thread of the previous page, or "". A limit of 0 means 100.
func (c *Client) Orphans(ctx context.Context, namespace, after string, limit int) (*runtimev1.RetainedList, error) {
	params := map[string]string{}
	if after != "" {
		params["after"] = after
	}
	if limit != 0 {
		params["limit"] = strconv.Itoa(limit)
	}
	return viewAs[runtimev1.RetainedList](ctx, c, params, namespace, runtimev1.ViewOrphans)
}

// RetainOrphan retains a thread whose object is gone, so that a new Thread whose spec.threadID names it can adopt it.
func (c *Client) RetainOrphan(ctx context.Context, namespace, id string) error {
	r, err := c.viewRequest(http.MethodPost, namespace, runtimev1.ViewOrphans, id)
	if err != nil {
		return err
	}
	return get(ctx, r, nil)
}
