package thread

import (
	"path"
	"strings"
)

// mimeTypes maps file extensions. The system's own table is not used, because it differs between machines.
var mimeTypes = map[string]string{
	".avif": "image/avif", ".bin": "application/octet-stream", ".bmp": "image/bmp", ".bz2": "application/x-bzip2",
	".c": "text/x-c", ".conf": "text/plain", ".css": "text/css", ".csv": "text/csv",
	".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document", ".env": "text/plain",
	".gif": "image/gif", ".go": "text/x-go", ".gz": "application/gzip", ".htm": "text/html", ".html": "text/html",
	".ico": "image/x-icon", ".ics": "text/calendar", ".ini": "text/plain", ".java": "text/x-java",
	".jpeg": "image/jpeg", ".jpg": "image/jpeg", ".js": "text/javascript", ".json": "application/json",
	".jsonl": "application/jsonl", ".jsx": "text/jsx", ".log": "text/plain", ".md": "text/markdown",
	".mjs": "text/javascript", ".mov": "video/quicktime", ".mp3": "audio/mpeg", ".mp4": "video/mp4",
	".ndjson": "application/x-ndjson", ".ogg": "audio/ogg", ".parquet": "application/vnd.apache.parquet",
	".pdf": "application/pdf", ".png": "image/png",
	".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation", ".py": "text/x-python",
	".rb": "text/x-ruby", ".rs": "text/x-rust", ".sh": "application/x-sh", ".sql": "application/sql",
	".svg": "image/svg+xml", ".tar": "application/x-tar", ".toml": "application/toml", ".ts": "text/typescript",
	".tsv": "text/tab-separated-values", ".tsx": "text/tsx", ".txt": "text/plain", ".wasm": "application/wasm",
	".wav": "audio/wav", ".webm": "video/webm", ".webp": "image/webp",
	".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", ".xml": "application/xml",
	".yaml": "application/yaml", ".yml": "application/yaml", ".zip": "application/zip", ".zst": "application/zstd",
}

// mimeType returns the given type, or else the type of the name's extension.
func mimeType(p, given string) string {
	if given != "" {
		return given
	}
	if t, ok := mimeTypes[strings.ToLower(path.Ext(p))]; ok {
		return t
	}
	return "application/octet-stream"
}
