package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/vibrant-ml/vibrant/internal/mapped"
)

var (
	// ErrChecksum is wrapped where what came is not what the hub says it has.
	ErrChecksum = errors.New("the SHA-256 is another than the hub's")
	// ErrDenied is wrapped where the hub wants a token, or another one.
	ErrDenied = errors.New("the hub denies access")
	// ErrReference is wrapped where a text names no model of a hub.
	ErrReference = errors.New("no reference to a model")
)

// PullOptions adjust Pull. The zero value asks the public hub.
type PullOptions struct {
	Endpoint string                               // "": HF_ENDPOINT, else https://huggingface.co
	Token    string                               // "": HF_TOKEN; none is fine for public models
	Dir      string                               // "": that of the function Dir
	Progress func(file string, done, total int64) // called often; nil for none

	pause   time.Duration // before trying again; 0: a second
	idle    time.Duration // without a byte after which a connection counts as cut; 0: half a minute
	listing time.Duration // that the list of files takes at most; 0: five minutes
}

// reference is OWNER/REPO[:QUANT].
var reference = regexp.MustCompile(`^(?:hf:|hf\.co/|https://huggingface\.co/)?([\w.-]+)/([\w.-]+?)(?::([\w.-]+))?$`)

// Pull brings a model of the form "hf:OWNER/REPO" or "hf:OWNER/REPO:QUANT" from a Hugging Face endpoint, without a
// quantization Q4_K_M, else Q8_0, else the only one. It returns the path of the file, of a split one of its first part.
// What was brought of a file before an error or the end of ctx stays, and the next Pull goes on there.
//
// Likely errors: ErrReference, ErrNotFound, ErrAmbiguous, ErrDenied, ErrChecksum, those of the network and the disk, that of ctx.
func Pull(ctx context.Context, ref string, o PullOptions) (string, error) {
	parts := reference.FindStringSubmatch(ref)
	if parts == nil || !filepath.IsLocal(parts[1]) || !filepath.IsLocal(parts[2]) {
		return "", fmt.Errorf("%.200q is %w: want hf:OWNER/REPO or hf:OWNER/REPO:QUANT", ref, ErrReference)
	}
	o.Endpoint = strings.TrimSuffix(firstOf(o.Endpoint, os.Getenv("HF_ENDPOINT"), "https://huggingface.co"), "/")
	o.Token = strings.TrimSpace(firstOf(o.Token, os.Getenv("HF_TOKEN"), tokenOfFile()))
	if err := o.check(); err != nil {
		return "", err
	}
	if o.pause == 0 {
		o.pause = time.Second
	}
	if o.idle == 0 {
		o.idle = 30 * time.Second
	}
	if o.listing == 0 {
		o.listing = 5 * time.Minute
	}
	if o.Dir == "" {
		dir, err := Dir()
		if err != nil {
			return "", err
		}
		o.Dir = dir
	}
	p := &puller{PullOptions: o, repo: parts[1] + "/" + parts[2]}
	path, err := p.model(ctx, parts[3])
	if errors.Is(err, ErrChecksum) { // the hub's file may have changed since it was listed, or since a part of it came
		path, err = p.model(ctx, parts[3])
	}
	return path, err
}

// check refuses what no request can be made with. A token stays out of messages.
func (o *PullOptions) check() error {
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("the hub's address (HF_ENDPOINT) is %.200q: want one such as https://huggingface.co", o.Endpoint)
	}
	if strings.ContainsFunc(o.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("the token (HF_TOKEN, or the file of HF_TOKEN_PATH) has characters that no token has")
	}
	return nil
}

// model brings the files of one model and returns the path of the first.
func (p *puller) model(ctx context.Context, quant string) (string, error) {
	var all []remoteFile
	err := p.retry(ctx, func() (_ bool, err error) {
		all, err = p.files(ctx)
		return false, err
	})
	if err != nil {
		return "", err
	}
	files, err := chooseFiles(p.repo, quant, all)
	if err != nil {
		return "", err
	}
	for _, f := range files {
		if err := p.pull(ctx, f); err != nil {
			return "", fmt.Errorf("%s/%s: %w", p.repo, f.Path, err)
		}
	}
	return p.path(files[0]), nil
}

// tokenOfFile returns the token that the program hf keeps where one logged in, or "".
func tokenOfFile() string {
	path := os.Getenv("HF_TOKEN_PATH")
	if path == "" {
		home := huggingFaceHome()
		if home == "" {
			return ""
		}
		path = filepath.Join(home, "token")
	}
	data, err := mapped.ReadFile(path, 4096)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
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

// mostPages bounds how many pages a list has. The public hub's have 1,000 files each.
const mostPages = 1000

// files lists the model files of the repository.
func (p *puller) files(ctx context.Context) ([]remoteFile, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.listing, fmt.Errorf("the list of %s takes more than %v", p.repo, p.listing))
	defer cancel()
	var all []remoteFile
	next := p.Endpoint + "/api/models/" + p.repo + "/tree/main?recursive=true"
	for page := 0; next != ""; page++ {
		if page == mostPages {
			return nil, permanentError{fmt.Errorf("%s lists files on more than %d pages", p.repo, mostPages)}
		}
		var files []remoteFile
		r, err := p.get(ctx, next, nil)
		if err == nil && r.StatusCode == http.StatusOK {
			err = json.NewDecoder(io.LimitReader(r.Body, 16<<20)).Decode(&files)
		} else if err == nil {
			err = p.statusError(r)
		}
		if r != nil {
			r.Body.Close()
		}
		if cause := context.Cause(ctx); cause != nil {
			return nil, permanentError{cause}
		}
		if err != nil {
			return nil, err
		}
		all = append(all, files...)
		if len(all) > 100_000 {
			return nil, permanentError{fmt.Errorf("%s lists more than 100,000 files", p.repo)}
		}
		next = ""
		if link := nextPage.FindStringSubmatch(r.Header.Get("Link")); link != nil {
			u, err := r.Request.URL.Parse(link[1])
			if err != nil || u.Host != r.Request.URL.Host {
				return nil, permanentError{fmt.Errorf("%s names a next page at another host", p.Endpoint)}
			}
			next = u.String()
		}
	}
	return slices.DeleteFunc(all, func(f remoteFile) bool {
		name := filepath.Base(f.Path)
		return f.Type != "file" || !isModelFile(name) ||
			!filepath.IsLocal(filepath.FromSlash(f.Path)) || len(f.Path) > 1000 || strings.ContainsFunc(f.Path, func(r rune) bool { return !unicode.IsPrint(r) })
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
		name := splitSuffix.ReplaceAllString(f.Path[:len(f.Path)-len(".gguf")], "-of-$2")
		if models[name] == nil {
			names, quants = append(names, name), append(quants, quantOf(name))
		}
		models[name] = append(models[name], f)
	}
	pick := func(want string) (found []string) {
		for i, name := range names {
			if !strings.EqualFold(quants[i], want) && !strings.EqualFold(baseOf(name), want) {
				continue
			}
			// Some repositories have a model in one file and in parts: the fewest files are taken.
			whole := partCount.ReplaceAllString(name, "")
			if i := slices.IndexFunc(found, func(f string) bool { return partCount.ReplaceAllString(f, "") == whole }); i < 0 {
				found = append(found, name)
			} else if len(models[name]) < len(models[found[i]]) {
				found[i] = name
			}
		}
		return found
	}
	wanted := []string{quant}
	if quant == "" {
		if wanted = []string{"Q4_K_M", "Q8_0"}; len(names) == 1 {
			wanted = []string{baseOf(names[0])}
		}
	}
	for _, w := range wanted {
		switch found := pick(w); len(found) {
		case 0:
		case 1:
			files := models[found[0]]
			slices.SortFunc(files, func(a, b remoteFile) int { return strings.Compare(a.Path, b.Path) })
			return files, nil
		default:
			for i, name := range found {
				found[i] = baseOf(name)
			}
			return nil, fmt.Errorf("%w: %s:%s; name one of its files, as in %s:%.300s", ErrAmbiguous, repo, w, repo, strings.Join(found, ", "))
		}
	}
	err := ErrAmbiguous
	if quant != "" {
		err = ErrNotFound
	}
	slices.Sort(quants)
	return nil, fmt.Errorf("%w: %s:%s; %s has %.300s", err, repo, quant, repo, strings.Join(slices.Compact(quants), ", "))
}

// partCount is what is left of splitSuffix in the names of chooseFiles.
var partCount = regexp.MustCompile(`-of-\d{5}$`)

// baseOf returns the name of a file without its folder and the count of its parts.
func baseOf(name string) string { return partCount.ReplaceAllString(filepath.Base(name), "") }
