package httptool

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// The headers that a tool's request carries.
const (
	// HeaderIdempotencyKey has the same value when a call is repeated after a crash.
	HeaderIdempotencyKey = "Idempotency-Key"
	// HeaderTimestamp is when a signed request was made, in seconds since 1970.
	HeaderTimestamp = "Skein-Timestamp"
	// HeaderDigest is the digest of a signed request's body (RFC 9530).
	HeaderDigest = "Content-Digest"
	// HeaderSignature is "v1=" followed by the signature in hexadecimal digits.
	HeaderSignature = "Skein-Signature"
)

// Sign returns the signature of a request: the hexadecimal HMAC-SHA256 of the method, the path with query, the
// timestamp and the hexadecimal SHA-256 of the body, joined by line feeds.
func Sign(key []byte, method string, u *url.URL, timestamp string, body []byte) string {
	digest := sha256.Sum256(body)
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte(strings.Join([]string{method, u.RequestURI(), timestamp, hex.EncodeToString(digest[:])}, "\n"))) // never fails
	return hex.EncodeToString(mac.Sum(nil))
}

func sign(key []byte, req *http.Request, body []byte, now time.Time) {
	timestamp := strconv.FormatInt(now.Unix(), 10)
	digest := sha256.Sum256(body)
	req.Header.Set(HeaderTimestamp, timestamp)
	req.Header.Set(HeaderDigest, "sha-256=:"+base64.StdEncoding.EncodeToString(digest[:])+":")
	req.Header.Set(HeaderSignature, "v1="+Sign(key, req.Method, req.URL, timestamp, body))
}
