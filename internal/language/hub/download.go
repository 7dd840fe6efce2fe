package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/vibrant-ml/vibrant/internal/filelock"
	"github.com/vibrant-ml/vibrant/internal/mapped"
)

// retries is how often in a row an attempt may fail without bringing a byte.
const retries = 5

// longestWait bounds how long a server may ask to wait (Retry-After).
const longestWait = 10 * time.Minute

// permanentError is one that trying again does not mend.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// busyError is one of a server that says when to come again.
type busyError struct {
	error
	after time.Duration
}

// errSilent is why a connection that brings nothing is given up.
var errSilent = errors.New("the server sends nothing")

// retry calls attempt until it succeeds, fails for good, or fails too often in a row without progress.
func (p *puller) retry(ctx context.Context, attempt func() (progress bool, err error)) error {
	for failures := 0; ; {
		progress, err := attempt()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if failures++; progress {
			failures = 0
		}
		if final := (permanentError{}); errors.As(err, &final) || failures == retries {
			return err
		}
		wait := p.pause
		if busy := (busyError{}); errors.As(err, &busy) {
			wait = max(wait, busy.after)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// get asks for a URL. The body's Read fails once nothing came for p.idle, as the request does.
func (p *puller) get(ctx context.Context, url string, header http.Header) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		cancel(nil)
		return nil, permanentError{err}
	}
	r.Header.Set("User-Agent", "vibrant")
	if p.Token != "" {
		r.Header.Set("Authorization", "Bearer "+p.Token) // net/http keeps it from other hosts that the hub redirects to
	}
	for name, values := range header {
		r.Header[name] = values
	}
	body := &watchedBody{ctx: ctx, cancel: cancel, idle: p.idle}
	body.timer = time.AfterFunc(p.idle, func() { cancel(fmt.Errorf("%w for %v", errSilent, p.idle)) })
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		body.timer.Stop()
		err = body.reason(err)
		cancel(nil)
		return nil, err
	}
	body.ReadCloser, answer.Body = answer.Body, body
	return answer, nil
}

// watchedBody is the body of an answer whose connection is given up when it is silent.
type watchedBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	idle   time.Duration
}

func (b *watchedBody) Read(to []byte) (int, error) {
	b.timer.Reset(b.idle)
	n, err := b.ReadCloser.Read(to)
	b.timer.Stop()
	if err != nil && err != io.EOF {
		err = b.reason(err)
	}
	return n, err
}

func (b *watchedBody) Close() error {
	b.timer.Stop()
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}

// reason returns errSilent for an error that came of it.
func (b *watchedBody) reason(err error) error {
	if cause := context.Cause(b.ctx); errors.Is(cause, errSilent) {
		return cause
	}
	return err
}

// statusError says what an answer without the file means.
func (p *puller) statusError(r *http.Response) error {
	err := fmt.Errorf("%s answers %s", r.Request.URL.Host, r.Status)
	switch {
	case r.StatusCode == http.StatusUnauthorized || r.StatusCode == http.StatusForbidden:
		advice := "set HF_TOKEN to a token of an account that may read it"
		if p.Token != "" {
			advice = "the token in HF_TOKEN may not read it, or its terms are to be accepted first at " + p.Endpoint + "/" + p.repo
		}
		err = fmt.Errorf("%w (%s): %s does not exist or is not public: %s", ErrDenied, r.Status, p.repo, advice)
	case r.StatusCode == http.StatusNotFound:
		err = fmt.Errorf("%w: %s has none at %s", ErrNotFound, p.Endpoint, p.repo)
	case r.StatusCode == http.StatusTooManyRequests || r.StatusCode >= 500:
		after := retryAfter(r.Header.Get("Retry-After"))
		if after <= longestWait {
			return busyError{err, after}
		}
		err = fmt.Errorf("%w and asks to come again in %v", err, after.Round(time.Second))
	case r.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		err = fmt.Errorf("%w: the file at the hub is shorter than the hub's list says", ErrChecksum)
	}
	return permanentError{err}
}

// retryAfter reads the header of that name: seconds, or a date.
func retryAfter(s string) time.Duration {
	if n, err := strconv.Atoi(s); err == nil {
		return time.Duration(min(max(n, 0), 1<<30)) * time.Second
	}
	if at, err := http.ParseTime(s); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

// pull brings one file, going on where an earlier attempt ended. Of several pulls of a file one works, the others wait.
func (p *puller) pull(ctx context.Context, f remoteFile) error {
	path := p.path(f)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	unlock, err := p.lock(ctx, path+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if isWhole(path, f) {
		return nil
	}
	part := path + f.version() + ".part"
	if stale, err := filepath.Glob(globQuote(path) + "*.part"); err == nil {
		for _, other := range stale {
			if other != part { // of an older file of this name
				os.Remove(other)
			}
		}
	}
	switch err := p.fill(ctx, part, f); {
	case errors.Is(err, ErrChecksum):
		os.Remove(part)
		return err
	case err != nil:
		return err
	}
	if f.LFS.OID != "" { // as sha256sum writes it
		if err := os.WriteFile(path+".sha256", []byte(f.LFS.OID+"  "+filepath.Base(path)+"\n"), 0o644); err != nil {
			return err
		}
	}
	return os.Rename(part, path)
}

// version tells files of one name apart whose content differs.
func (f remoteFile) version() string {
	if len(f.LFS.OID) < 12 || strings.Trim(f.LFS.OID, "0123456789abcdefABCDEF") != "" {
		return ""
	}
	return "." + f.LFS.OID[:12]
}

// isWhole reports whether a file has come before: only whole files get their name. One that a user put there has no
// checksum beside it, and its size decides.
func isWhole(path string, f remoteFile) bool {
	info, err := os.Stat(path)
	if err != nil || info.Size() != f.Size {
		return false
	}
	sum, err := mapped.ReadFile(path+".sha256", 4096)
	return err != nil || f.LFS.OID == "" || strings.HasPrefix(string(sum), f.LFS.OID)
}

// lock waits until nobody else holds the lock of a file, which it creates, and returns what gives it back.
func (p *puller) lock(ctx context.Context, path string) (unlock func(), err error) {
	for {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, err
		}
		locked, err := filelock.Try(file)
		if errors.Is(err, errors.ErrUnsupported) { // two pulls of a file at once are for the user to avoid
			locked, err = true, nil
		}
		if locked {
			// Who held it before may have removed the file since it was opened.
			mine, err1 := file.Stat()
			now, err2 := os.Stat(path)
			if err1 == nil && err2 == nil && os.SameFile(mine, now) {
				return func() { os.Remove(path); file.Close() }, nil
			}
		}
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if !locked {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(min(p.pause, 200*time.Millisecond)):
			}
		}
	}
}

// fill brings what is missing of a file, and checks all of it.
func (p *puller) fill(ctx context.Context, path string, f remoteFile) (err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if e := file.Close(); err == nil {
			err = e
		}
	}()
	d := &download{puller: p, remoteFile: f, file: file, sum: sha256.New()}
	d.url = p.Endpoint + "/" + p.repo + "/resolve/main/" + (&url.URL{Path: f.Path}).EscapedPath()
	if d.done, err = io.Copy(d.sum, io.LimitReader(file, f.Size+1)); err != nil {
		return err
	}
	for d.done < f.Size {
		err := p.retry(ctx, func() (bool, error) {
			before := d.done
			err := d.more(ctx)
			return d.done > before, err
		})
		if err != nil {
			return err
		}
	}
	if d.done != f.Size {
		return fmt.Errorf("%w: more than the %d bytes that it has at the hub", ErrChecksum, f.Size)
	}
	if got := hex.EncodeToString(d.sum.Sum(nil)); f.LFS.OID != "" && !strings.EqualFold(got, f.LFS.OID) {
		return fmt.Errorf("%w: %s, not %.64s", ErrChecksum, got, f.LFS.OID)
	}
	return file.Sync()
}

// download is a file on its way.
type download struct {
	*puller
	remoteFile
	url  string
	file *os.File
	sum  hash.Hash // of the first done bytes, which are in the file
	done int64
	etag string // of the answer before
}

// more appends to the file what one answer brings.
func (d *download) more(ctx context.Context) error {
	header := http.Header{}
	if d.done > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", d.done))
		if strings.HasPrefix(d.etag, `"`) { // a strong one: of another file the whole is to come
			header.Set("If-Range", d.etag)
		}
	}
	r, err := d.get(ctx, d.url, header)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	switch r.StatusCode {
	case http.StatusOK: // the whole file, whatever was asked for
		d.sum.Reset()
		d.done = 0
		if err := d.file.Truncate(0); err != nil {
			return permanentError{err}
		}
	case http.StatusPartialContent:
		var from, last, total int64
		part := r.Header.Get("Content-Range")
		if n, _ := fmt.Sscanf(part, "bytes %d-%d/%d", &from, &last, &total); n < 2 || from != d.done {
			return permanentError{fmt.Errorf("the server sends another part than was asked for: %.100q", part)}
		} else if n == 3 && total != d.Size {
			return permanentError{fmt.Errorf("%w: the file has %d bytes, where the hub's list says %d", ErrChecksum, total, d.Size)}
		}
	default:
		return d.statusError(r)
	}
	d.etag = r.Header.Get("ETag")
	if _, err := d.file.Seek(d.done, io.SeekStart); err != nil {
		return permanentError{err}
	}
	return d.copy(ctx, r.Body)
}

// copy appends a body to the file.
func (d *download) copy(ctx context.Context, body io.Reader) error {
	buf := make([]byte, 1<<18)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := body.Read(buf)
		if d.done+int64(n) > d.Size {
			return permanentError{fmt.Errorf("%w: the server sends more than the %d bytes of the file", ErrChecksum, d.Size)}
		}
		if n > 0 {
			if _, err := d.file.Write(buf[:n]); err != nil {
				return permanentError{fmt.Errorf("%w; what came before is kept, and the next pull goes on there", err)}
			}
			d.sum.Write(buf[:n])
			d.done += int64(n)
			if d.Progress != nil {
				d.Progress(d.Path, d.done, d.Size)
			}
		}
		switch {
		case err == io.EOF && d.done < d.Size:
			return fmt.Errorf("%w: the server ended after %d of %d bytes", io.ErrUnexpectedEOF, d.done, d.Size)
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}
