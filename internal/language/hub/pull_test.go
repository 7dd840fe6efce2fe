package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vibrant-ml/vibrant/internal/check/busy"
)

// fakeHub behaves as the hub does: a list of files, downloads by redirect to another host, ranges, tokens.
type fakeHub struct {
	files map[string]string // of the repository owner/model
	token string            // "": public

	cut       int  // bytes after which each download breaks, 0: never
	noRanges  bool // answers with the whole file
	corrupt   bool
	downloads int
	leaked    bool // the token reached the storage's host
	failures  int  // answers 503 so often first

	shift   int               // added to where a range begins
	busy    int               // answers 429 so often first, with Retry-After
	silent  int               // so many answers stop in their middle, with the connection open
	says    int               // added to the length and the range that are announced, once
	next    map[string]string // the files after the first download
	mutex   sync.Mutex        // guards downloads and all that changes
	noETags bool
}

func (h *fakeHub) start(t *testing.T) PullOptions {
	t.Helper()
	storage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mutex.Lock()
		defer h.mutex.Unlock()
		h.leaked = h.leaked || r.Header.Get("Authorization") != ""
		h.downloads++
		if h.failures > 0 {
			h.failures--
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if h.busy > 0 {
			h.busy--
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		data := h.files[strings.TrimPrefix(r.URL.Path, "/blob/")]
		if h.corrupt {
			data = strings.Repeat("x", len(data))
		}
		etag := fmt.Sprintf("%q", fmt.Sprintf("%x", sha256.Sum256([]byte(data))))
		if !h.noETags {
			w.Header().Set("ETag", etag)
		}
		from, status, size := 0, http.StatusOK, len(data)+h.says
		changed := r.Header.Get("If-Range") != "" && r.Header.Get("If-Range") != etag
		if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); n == 1 && !h.noRanges && !changed {
			status = http.StatusPartialContent
			if from >= len(data) {
				w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
				return
			}
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from+h.shift, size-1, size))
		} else {
			from = 0
		}
		w.Header().Set("Content-Length", fmt.Sprint(size-from))
		w.WriteHeader(status)
		rest := data[from:]
		if h.says < 0 {
			rest = rest[:len(rest)+h.says]
		}
		h.says = 0
		if h.next != nil {
			h.files, h.next = h.next, nil
		}
		if h.silent > 0 {
			h.silent--
			w.Write([]byte(rest[:len(rest)/2]))
			w.(http.Flusher).Flush()
			h.mutex.Unlock()
			<-r.Context().Done()
			h.mutex.Lock()
			return
		}
		if h.cut > 0 && len(rest) > h.cut {
			rest = rest[:h.cut] // the server closes a connection that got less than was said
		}
		w.Write([]byte(rest))
	}))
	t.Cleanup(storage.Close)
	// Another name of the same machine is another host to net/http.
	elsewhere := strings.Replace(storage.URL, "127.0.0.1", "localhost", 1)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.token != "" && r.Header.Get("Authorization") != "Bearer "+h.token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if file, ok := strings.CutPrefix(r.URL.Path, "/owner/model/resolve/main/"); ok {
			http.Redirect(w, r, elsewhere+"/blob/"+file, http.StatusFound)
			return
		}
		if r.URL.Path != "/api/models/owner/model/tree/main" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		h.mutex.Lock()
		defer h.mutex.Unlock()
		var list []map[string]any
		for _, path := range slices.Sorted(maps.Keys(h.files)) {
			data := h.files[path]
			sum := sha256.Sum256([]byte(data))
			list = append(list, map[string]any{"type": "file", "path": path, "size": len(data),
				"lfs": map[string]any{"oid": hex.EncodeToString(sum[:]), "size": len(data)}})
		}
		if r.URL.Query().Get("cursor") == "" { // the list comes in two pages
			w.Header().Set("Link", `</api/models/owner/model/tree/main?cursor=2>; rel="next"`)
			list = list[:len(list)/2]
		} else {
			list = list[len(list)/2:]
		}
		json.NewEncoder(w).Encode(append(list, map[string]any{"type": "directory", "path": "dir"}))
	}))
	t.Cleanup(api.Close)
	return PullOptions{Endpoint: api.URL, Dir: t.TempDir(), pause: time.Millisecond}
}

func oneFile() *fakeHub {
	return &fakeHub{files: map[string]string{"model-Q4_K_M.gguf": strings.Repeat("0123456789", 100_000)}}
}

func TestPullBringsAFileAndItsName(t *testing.T) {
	h := oneFile()
	o := h.start(t)
	last := int64(0)
	o.Progress = func(file string, done, total int64) {
		if file != "model-Q4_K_M.gguf" || done < last || total != 1_000_000 {
			t.Errorf("%s: %d of %d after %d", file, done, total, last)
		}
		last = done
	}
	for range 2 { // the second finds it
		path, err := Pull(t.Context(), "hf:owner/model", o)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != h.files["model-Q4_K_M.gguf"] {
			t.Fatalf("another file: %v", err)
		}
	}
	if h.downloads != 1 || last != 1_000_000 {
		t.Errorf("%d downloads, %d bytes", h.downloads, last)
	}
	t.Setenv("VIBRANT_MODELS", o.Dir)
	for _, name := range []string{"owner/model", "OWNER/model:q4_k_m", "model-Q4_K_M", "model-Q4_K_M.gguf"} {
		if path, err := Find(name); err != nil || filepath.Base(path) != "model-Q4_K_M.gguf" {
			t.Errorf("%s: %q, %v", name, path, err)
		}
	}
}

func TestPullGoesOnAfterCutConnections(t *testing.T) {
	for name, change := range map[string]func(h *fakeHub){
		"cut":              func(h *fakeHub) { h.cut = 90_000 },
		"fails at first":   func(h *fakeHub) { h.failures = 3 },
		"without ranges":   func(h *fakeHub) { h.noRanges = true },
		"cut and failures": func(h *fakeHub) { h.cut, h.failures = 300_000, 2 },
		"cut, no ranges":   func(h *fakeHub) { h.says, h.noRanges = 10, true },
		"silent":           func(h *fakeHub) { h.silent = 2 },
		"busy":             func(h *fakeHub) { h.busy = 1 },
		"shorter for once": func(h *fakeHub) { h.says = -10 },
		"longer for once":  func(h *fakeHub) { h.says = 10 },
		"changes": func(h *fakeHub) {
			h.cut, h.next = 600_000, map[string]string{"model-Q4_K_M.gguf": strings.Repeat("9876543210", 100_000)}
		},
		"changes, no ETag": func(h *fakeHub) {
			h.cut, h.next, h.noETags = 600_000, map[string]string{"model-Q4_K_M.gguf": strings.Repeat("9876543210", 100_000)}, true
		},
		"grows": func(h *fakeHub) {
			h.cut, h.next = 600_000, map[string]string{"model-Q4_K_M.gguf": strings.Repeat("ab", 700_000)}
		},
		"shrinks": func(h *fakeHub) {
			h.cut, h.next = 600_000, map[string]string{"model-Q4_K_M.gguf": strings.Repeat("ab", 200_000)}
		},
	} {
		h := oneFile()
		change(h)
		silent := h.silent > 0
		o := h.start(t)
		if silent { // five answers in a row may be late on a busy machine
			o.idle, o.listing = time.Second, busy.Limit
		}
		start := time.Now()
		path, err := Pull(t.Context(), "owner/model", o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != h.files["model-Q4_K_M.gguf"] {
			t.Errorf("%s: another file than the hub's last; %v", name, err)
		}
		if name == "busy" && time.Since(start) < time.Second {
			t.Errorf("it came again after %v, where Retry-After says a second", time.Since(start))
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) != 2 {
			t.Errorf("%s: %q is there, want the file and its checksum", name, left)
		}
	}
}

// An endless failure ends, and says what it was.
func TestPullGivesUp(t *testing.T) {
	for want, change := range map[string]func(h *fakeHub){
		"sends nothing for 20ms":      func(h *fakeHub) { h.silent = 1 << 30 },
		"503 Service Unavailable":     func(h *fakeHub) { h.failures = 1 << 30 },
		"another part than was asked": func(h *fakeHub) { h.cut, h.shift = 100, 5 },
	} {
		h := oneFile()
		change(h)
		h.files["model-Q4_K_M.gguf"] = "0123456789" + strings.Repeat("x", 200)
		silent := h.silent > 0
		o := h.start(t)
		if silent {
			o.idle, o.listing = 20*time.Millisecond, busy.Limit
		}
		if _, err := Pull(t.Context(), "owner/model", o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestTwoPullsAtOnceBringOneFile(t *testing.T) {
	h := oneFile()
	h.cut = 50_000
	o := h.start(t)
	errs := make(chan error)
	for range 4 {
		go func() {
			_, err := Pull(t.Context(), "owner/model", o)
			errs <- err
		}()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if h.downloads != 20 {
		t.Errorf("%d downloads of 50,000 bytes for a file of 1,000,000", h.downloads)
	}
}

// A file that the hub has changed, even to one of the same size, is brought again.
func TestPullBringsWhatHasChanged(t *testing.T) {
	h := oneFile()
	o := h.start(t)
	for _, content := range []string{h.files["model-Q4_K_M.gguf"], strings.Repeat("9876543210", 100_000)} {
		h.files["model-Q4_K_M.gguf"] = content
		path, err := Pull(t.Context(), "owner/model", o)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != content {
			t.Errorf("an older file; %v", err)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	for in, want := range map[string]time.Duration{"": 0, "7": 7 * time.Second, "-1": 0, "soon": 0, "Wed, 21 Oct 2015 07:28:00 GMT": 0} {
		if got := retryAfter(in); got != want {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
	if got := retryAfter(time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)); got < 59*time.Minute || got > time.Hour {
		t.Errorf("in an hour: %v", got)
	}
}

func TestPullGoesOnWhereAnEarlierOneEnded(t *testing.T) {
	h := oneFile()
	o := h.start(t)
	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = func(_ string, done, _ int64) {
		if done > 300_000 {
			cancel()
		}
	}
	if _, err := Pull(ctx, "owner/model", o); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	first := int64(0)
	o.Progress = func(_ string, done, _ int64) {
		if first == 0 {
			first = done
		}
	}
	if _, err := Pull(t.Context(), "owner/model", o); err != nil {
		t.Fatal(err)
	}
	if first <= 300_000 {
		t.Errorf("it began again: %d bytes at first", first)
	}
}

func TestPullRefusesWhatIsNotTheHubsFile(t *testing.T) {
	h := oneFile()
	h.corrupt = true
	o := h.start(t)
	if _, err := Pull(t.Context(), "owner/model", o); !errors.Is(err, ErrChecksum) {
		t.Errorf("%v", err)
	}
	left, _ := filepath.Glob(filepath.Join(o.Dir, "owner", "model", "*"))
	if len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

func TestPullNeedsATokenAndKeepsItFromOtherHosts(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HF_TOKEN", "")
	t.Setenv("HF_TOKEN_PATH", "")
	t.Setenv("HF_HOME", home)
	h := oneFile()
	h.token = "secret"
	o := h.start(t)
	if _, err := Pull(t.Context(), "owner/model", o); !errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "HF_TOKEN") {
		t.Errorf("%v", err)
	}
	o.Token = "wrong"
	if _, err := Pull(t.Context(), "owner/model", o); !errors.Is(err, ErrDenied) || strings.Contains(err.Error(), "wrong") {
		t.Errorf("%v", err)
	}
	o.Token = "secret"
	if _, err := Pull(t.Context(), "owner/model", o); err != nil || h.leaked {
		t.Errorf("%v, leaked: %v", err, h.leaked)
	}
	o.Token, o.Dir = "", t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "token"), []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Pull(t.Context(), "owner/model", o); err != nil {
		t.Errorf("with the token of a file: %v", err)
	}
	t.Chdir(home)
	for _, name := range []string{"HF_HOME", "XDG_CACHE_HOME", "HOME", "USERPROFILE"} {
		t.Setenv(name, "")
	}
	if token := tokenOfFile(); token != "" {
		t.Errorf("without a home %q of the working directory is a token", token)
	}
}

func TestPullSaysWhatIsWrongWithAReference(t *testing.T) {
	h := oneFile()
	o := h.start(t)
	for ref, want := range map[string]error{"owner/other": ErrNotFound, "owner/model:Q5_0": ErrNotFound, "model": nil, "../../etc": nil, "a/../b": nil, "": nil} {
		if _, err := Pull(t.Context(), ref, o); err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%q: %v", ref, err)
		}
	}
}

func TestChoiceAmongTheFilesOfARepository(t *testing.T) {
	list := func(paths ...string) (all []remoteFile) {
		for _, p := range paths {
			all = append(all, remoteFile{Path: p})
		}
		return all
	}
	for _, c := range []struct {
		quant string
		files []remoteFile
		want  string
	}{
		{"", list("m-Q8_0.gguf", "m-Q4_K_M.gguf"), "m-Q4_K_M.gguf"},
		{"q8_0", list("m-Q8_0.gguf", "m-Q4_K_M.gguf"), "m-Q8_0.gguf"},
		{"", list("m-f16.gguf"), "m-f16.gguf"},
		{"", list("m-f16.gguf", "m-Q2_K.gguf"), ""},
		{"Q6_K", list("Q6_K/m-Q6_K-00002-of-00002.gguf", "Q6_K/m-Q6_K-00001-of-00002.gguf"), "Q6_K/m-Q6_K-00001-of-00002.gguf Q6_K/m-Q6_K-00002-of-00002.gguf"},
		{"UD-Q4_K_XL", list("m-UD-Q4_K_XL.gguf", "m-Q4_K_M.gguf"), "m-UD-Q4_K_XL.gguf"},
		{"MXFP4", list("gpt-oss-20b-mxfp4.gguf"), "gpt-oss-20b-mxfp4.gguf"},
		{"Q8_0", list("base-Q8_0.gguf", "chat-Q8_0.gguf"), ""},
		{"", list("base-Q8_0.gguf", "chat-Q8_0.gguf"), ""},
		{"chat-Q8_0", list("base-Q8_0.gguf", "chat-Q8_0.gguf"), "chat-Q8_0.gguf"},
		{"q8_0", list("m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf", "m-Q8_0.gguf"), "m-Q8_0.gguf"},
		{"", list("m-Q8_0-00002-of-00002.gguf", "m-Q8_0-00001-of-00002.gguf"), "m-Q8_0-00001-of-00002.gguf m-Q8_0-00002-of-00002.gguf"},
	} {
		files, err := chooseFiles("owner/model", c.quant, c.files)
		var got []string
		for _, f := range files {
			got = append(got, f.Path)
		}
		if strings.Join(got, " ") != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q: %q, want %q; %v", c.quant, got, c.want, err)
		}
	}
}
