package call

import (
	"mime"
	"net/http"
	"path"
)

// SetDownloadHeaders marks an answer as a file that a client stored. A browser saves it, and neither guesses its type nor runs it as a page
// of this API: such a page could act with the rights of the user who looks at it.
func SetDownloadHeaders(h http.Header, name string) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	disposition := mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(name)})
	if disposition == "" {
		disposition = "attachment"
	}
	h.Set("Content-Disposition", disposition)
}
