package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

var (
	// ErrChecksum is wrapped where what came is not what the hub says it has.
	ErrChecksum = errors.New("the SHA-256 is another than the hub's")
	// ErrDenied is wrapped where the hub wants a token, or another one.
	ErrDenied = errors.New("the hub denies access")
)

// PullOptions adjust Pull. The zero value asks the public hub.
type PullOptions struct {
	Endpoint string                               // "": HF_ENDPOINT, else https://huggingface.co
	Token    string                               // "": HF_TOKEN; none is fine for public models
	Dir      string                               // "": that of the function Dir
	Progress func(file string, done, total int64) // called often; nil for none

	pause time.Duration // before trying again; 0: a second
}

// retries is how often in a row a download may break without bringing a byte.
const retries = 5

// reference is OWNER/REPO[:QUANT].
var reference = regexp.MustCompile(`^(?:hf:|hf\.co/|https://huggingface\.co/)?([\w.-]+)/([\w.-]+?)(?::([\w.-]+))?$`)

// Pull brings a model of the form "hf:OWNER/REPO" or "hf:OWNER/REPO:QUANT" from a Hugging Face endpoint, without a
// quantization Q4_K_M, else Q8_0, else the only one. It returns the path of the file, of a split one of its first part.
// What was brought of a file before an error or the end of ctx stays, and the next Pull goes on there.
//
// Likely errors: ErrNotFound, ErrAmbiguous, ErrDenied, ErrChecksum, those of the network and the disk, that of ctx.
func Pull(ctx context.Context, ref string, o PullOptions) (string, error) {
	parts := reference.FindStringSubmatch(ref)
	if parts == nil || !filepath.IsLocal(parts[1]) || !filepath.IsLocal(parts[2]) {
		return "", fmt.Errorf("%.200q is no reference to a model: want hf:OWNER/REPO or hf:OWNER/REPO:QUANT", ref)
	}
	o.Endpoint = strings.TrimSuffix(firstOf(o.Endpoint, os.Getenv("HF_ENDPOINT"), "https://huggingface.co"), "/")
	o.Token = firstOf(o.Token, os.Getenv("HF_TOKEN"))
	if o.pause == 0 {
		o.pause = time.Second
	}
	if o.Dir == "" {
		dir, err := Dir()
		if err != nil {
			return "", err
		}
		o.Dir = dir
	}
	p := &puller{PullOptions: o, repo: parts[1] + "/" + parts[2]}
	files, err := p.files(ctx)
	if err != nil {
		return "", err
	}
	if files, err = chooseFiles(p.repo, parts[3], files); err != nil {
		return "", err
	}
	for _, f := range files {
		if err := p.pull(ctx, f); err != nil {
			return "", fmt.Errorf("%s/%s: %w", p.repo, f.Path, err)
		}
	}
	return p.path(files[0]), nil
}

func firstOf(all ...string) string {
	for _, s := range all {
		if s != "" {
			return s
		}
	}
	return ""
}

type puller struct {
	PullOptions
	repo string
}

// remoteFile is an entry of the hub's list.
type remoteFile struct {
	Type, Path string
	Size       int64
	LFS        struct {
		OID  string // SHA-256
		Size int64
	}
}

func (p *puller) path(f remoteFile) string {
	return filepath.Join(p.Dir, filepath.FromSlash(p.repo), filepath.FromSlash(f.Path))
}

func (p *puller) get(ctx context.Context, url string, from int64) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "vibrant")
	if p.Token != "" {
		r.Header.Set("Authorization", "Bearer "+p.Token) // net/http keeps it from other hosts that the hub redirects to
	}
	if from > 0 {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	return http.DefaultClient.Do(r)
}

// statusError says what an answer without the file means.
func (p *puller) statusError(r *http.Response) error {
	switch r.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		advice := "set HF_TOKEN to a token of an account that may read it"
		if p.Token != "" {
			advice = "the token in HF_TOKEN may not read it, or its terms are to be accepted first at " + p.Endpoint + "/" + p.repo
		}
		return fmt.Errorf("%w (%s): %s does not exist or is not public: %s", ErrDenied, r.Status, p.repo, advice)
	case http.StatusNotFound:
		return fmt.Errorf("%w: %s has none at %s", ErrNotFound, p.Endpoint, p.repo)
	}
	return fmt.Errorf("%s answers %s", p.Endpoint, r.Status)
}

// files lists the model files of the repository.
func (p *puller) files(ctx context.Context) ([]remoteFile, error) {
	var all []remoteFile
	for next := p.Endpoint + "/api/models/" + p.repo + "/tree/main?recursive=true"; next != ""; {
		r, err := p.get(ctx, next, 0)
		if err != nil {
			return nil, err
		}
		var page []remoteFile
		if r.StatusCode == http.StatusOK {
			err = json.NewDecoder(io.LimitReader(r.Body, 16<<20)).Decode(&page)
		} else {
			err = p.statusError(r)
		}
		r.Body.Close()
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(all) > 100_000 {
			return nil, fmt.Errorf("%s lists more than 100,000 files", p.repo)
		}
		next = ""
		if link := nextPage.FindStringSubmatch(r.Header.Get("Link")); link != nil {
			u, err := r.Request.URL.Parse(link[1])
			if err != nil || u.Host != r.Request.URL.Host {
				return nil, fmt.Errorf("%s names a next page at another host", p.Endpoint)
			}
			next = u.String()
		}
	}
	return slices.DeleteFunc(all, func(f remoteFile) bool {
		name := filepath.Base(f.Path)
		return f.Type != "file" || !strings.EqualFold(filepath.Ext(name), ".gguf") || strings.HasPrefix(strings.ToLower(name), "mmproj") ||
			!filepath.IsLocal(filepath.FromSlash(f.Path))
	}), nil
}

var nextPage = regexp.MustCompile(`<([^>]+)>;\s*rel="next"`)

// chooseFiles returns the parts of the one model that is meant.
func chooseFiles(repo, quant string, all []remoteFile) ([]remoteFile, error) {
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: %s has no GGUF file; search the hub for the model's name with GGUF", ErrNotFound, repo)
	}
	models := map[string][]remoteFile{} // by path without the number of the part
	var names, quants []string
	for _, f := range all {
		name := splitSuffix.ReplaceAllString(f.Path[:len(f.Path)-len(".gguf")], "")
		if models[name] == nil {
			names, quants = append(names, name), append(quants, quantOf(name))
		}
		models[name] = append(models[name], f)
	}
	pick := func(want string) []remoteFile {
		for i, name := range names {
			if strings.EqualFold(quants[i], want) || strings.EqualFold(filepath.Base(name), want) {
				files := models[name]
				slices.SortFunc(files, func(a, b remoteFile) int { return strings.Compare(a.Path, b.Path) })
				return files
			}
		}
		return nil
	}
	wanted := []string{quant}
	if quant == "" {
		if wanted = []string{"Q4_K_M", "Q8_0"}; len(names) == 1 {
			wanted = []string{filepath.Base(names[0])}
		}
	}
	for _, w := range wanted {
		if files := pick(w); files != nil {
			return files, nil
		}
	}
	err := ErrAmbiguous
	if quant != "" {
		err = ErrNotFound
	}
	slices.Sort(quants)
	return nil, fmt.Errorf("%w: %s:%s; %s has %.300s", err, repo, quant, repo, strings.Join(slices.Compact(quants), ", "))
}

// pull brings one file, going on where an earlier attempt ended.
func (p *puller) pull(ctx context.Context, f remoteFile) (err error) {
	path := p.path(f)
	if info, err := os.Stat(path); err == nil && info.Size() == f.Size {
		return nil // whole files alone get this name
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	part, err := os.OpenFile(path+".part", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if e := part.Close(); err == nil {
			err = e
		}
		if err == nil {
			err = os.Rename(part.Name(), path)
		} else if errors.Is(err, ErrChecksum) {
			os.Remove(part.Name())
		}
	}()
	sum := sha256.New()
	done, err := io.Copy(sum, part)
	if err != nil {
		return err
	}
	url := p.Endpoint + "/" + p.repo + "/resolve/main/" + (&url.URL{Path: f.Path}).EscapedPath()
	for failures := 0; done < f.Size; {
		before := done
		done, err = p.download(ctx, url, part, sum, done, f)
		if err == nil {
			continue
		}
		if failures++; done > before {
			failures = 0
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if final := (permanentError{}); errors.As(err, &final) || failures == retries {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(p.pause):
		}
	}
	if done != f.Size {
		return fmt.Errorf("%w: %d bytes of %d", ErrChecksum, done, f.Size)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); f.LFS.OID != "" && got != strings.ToLower(f.LFS.OID) {
		return fmt.Errorf("%w: %s, not %.64s", ErrChecksum, got, f.LFS.OID)
	}
	return part.Sync()
}

// permanentError is one that trying again does not mend.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// download appends to the file what one answer brings, and returns how much there is then.
func (p *puller) download(ctx context.Context, url string, part *os.File, sum hash.Hash, done int64, f remoteFile) (int64, error) {
	r, err := p.get(ctx, url, done)
	if err != nil {
		return done, err
	}
	defer r.Body.Close()
	switch {
	case r.StatusCode == http.StatusPartialContent && strings.HasPrefix(r.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", done)):
	case r.StatusCode == http.StatusOK: // the whole file, whatever was asked for
		done = 0
		sum.Reset()
		if err := part.Truncate(0); err != nil {
			return 0, permanentError{err}
		}
	case r.StatusCode >= 500 || r.StatusCode == http.StatusTooManyRequests:
		return done, p.statusError(r)
	case r.StatusCode == http.StatusPartialContent:
		return done, permanentError{fmt.Errorf("the server sends another part than was asked for: %q", r.Header.Get("Content-Range"))}
	default:
		return done, permanentError{p.statusError(r)}
	}
	if _, err := part.Seek(done, io.SeekStart); err != nil {
		return done, permanentError{err}
	}
	buf := make([]byte, 1<<18)
	for {
		if err := ctx.Err(); err != nil {
			return done, err
		}
		n, err := r.Body.Read(buf)
		if done+int64(n) > f.Size {
			return done, permanentError{fmt.Errorf("%w: the server sends more than the %d bytes of the file", ErrChecksum, f.Size)}
		}
		if n > 0 {
			if _, err := part.Write(buf[:n]); err != nil {
				return done, permanentError{err}
			}
			sum.Write(buf[:n])
			done += int64(n)
			if p.Progress != nil {
				p.Progress(f.Path, done, f.Size)
			}
		}
		switch {
		case err == io.EOF && done < f.Size:
			return done, io.ErrUnexpectedEOF
		case err == io.EOF:
			return done, nil
		case err != nil:
			return done, err
		}
	}
}
