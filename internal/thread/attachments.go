package thread

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/skein-dev/skein/internal/store"
)

// attachmentFolder is where files copied from another thread are placed.
const attachmentFolder = "/attachments"

// fileCopy is a file to create and the attachment that refers to it.
type fileCopy struct {
	file       store.File
	attachment store.Attachment
}

// CopyFilesFrom copies files of another thread into this one and returns them as attachments with their paths here
// (FIL-07). It copies by content address, so no bytes are moved. A file that was copied before is not copied again.
func (st *State) CopyFilesFrom(ctx context.Context, src *State, paths []string) ([]store.Attachment, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	var gone string
	for {
		copies, err := planCopies(ctx, src, paths, func(p string) (*store.File, error) {
			f, err := st.svc.store.File(ctx, st.id, p)
			if errors.Is(err, store.ErrNotFound) {
				return nil, nil
			}
			return f, err
		})
		if err != nil {
			return nil, err
		}
		ops := make([]store.Op, 0, len(copies))
		for _, c := range copies {
			ops = append(ops, &store.PutFile{File: c.file, Quota: st.svc.quota})
		}
		err = st.Apply(ctx, ops...)
		// Contents that disappeared between the plan and the copy were replaced in the source, so copy its present
		// files. The same digests twice mean that contents are lost.
		if plan := digestsOf(copies); errors.Is(err, store.ErrNoContents) && plan != gone {
			gone = plan
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, op := range ops {
			st.svc.blobs.remove(ctx, op.(*store.PutFile).Freed...)
		}
		return attachmentsOf(copies), nil
	}
}

func digestsOf(copies []fileCopy) string {
	var all strings.Builder
	for _, c := range copies {
		all.WriteString(c.file.Digest)
	}
	return all.String()
}

// planCopies finds the source's files and a free path for each. taken returns what is at a path of the receiver.
func planCopies(ctx context.Context, src *State, paths []string, taken func(path string) (*store.File, error)) (copies []fileCopy, err error) {
	planned := map[string]string{} // path → digest
	for _, p := range paths {
		if p, err = filePath(p); err != nil {
			return nil, err
		}
		f, err := src.file(ctx, p)
		if err != nil {
			return nil, err
		}
		to, err := pathFor(baseName(f.Path), f.Digest, planned, taken)
		if err != nil {
			return nil, err
		}
		planned[to] = f.Digest
		f.Path, f.CreatedAt = to, src.svc.now()
		copies = append(copies, fileCopy{file: *f, attachment: attachmentOf(f)})
	}
	return copies, nil
}

// file returns the record of a path that must be a file.
func (st *State) file(ctx context.Context, p string) (*store.File, error) {
	f, err := st.svc.store.File(ctx, st.id, p)
	switch {
	case errors.Is(err, store.ErrNotFound):
		e := invalid("attachments", "there is no file %s: write it first", p)
		e.cause = err
		return nil, e
	case err != nil:
		return nil, err
	case f.Dir:
		return nil, invalid("attachments", "%s is a folder: name files", p)
	}
	return f, nil
}

// pathFor returns the path at which to put a file with a digest: its own name, or the name with a number. Nothing is there, or a file with
// the same contents.
func pathFor(name, digest string, planned map[string]string, taken func(string) (*store.File, error)) (string, error) {
	ext := path.Ext(name)
	stem := strings.TrimSuffix(name, ext)
	for n := 1; ; n++ {
		p := path.Join(attachmentFolder, name)
		if n > 1 {
			p = path.Join(attachmentFolder, fmt.Sprintf("%s-%d%s", stem, n, ext))
		}
		if d, ok := planned[p]; ok && d == digest {
			return p, nil
		} else if ok {
			continue
		}
		f, err := taken(p)
		if err != nil {
			return "", err
		}
		if f == nil || (!f.Dir && f.Digest == digest) {
			return p, nil
		}
	}
}

// attachment fills in the empty fields of a message's attachment.
func (st *State) attachment(ctx context.Context, a store.Attachment) (store.Attachment, error) {
	p, err := filePath(a.Path)
	if err != nil {
		return a, err
	}
	f, err := st.file(ctx, p)
	if err != nil {
		return a, err
	}
	full := attachmentOf(f)
	if a.Name != "" {
		full.Name = a.Name
	}
	return full, nil
}

func attachmentOf(f *store.File) store.Attachment {
	return store.Attachment{Path: f.Path, Name: baseName(f.Path), MimeType: f.MimeType, Size: f.Size}
}

func attachmentsOf(copies []fileCopy) []store.Attachment {
	var out []store.Attachment
	for _, c := range copies {
		out = append(out, c.attachment)
	}
	return out
}
