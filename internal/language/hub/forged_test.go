package hub

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vibrant-ml/vibrant/internal/check/busy"
)

// zeros has no end.
type zeros struct{}

func (zeros) Read(to []byte) (int, error) {
	clear(to)
	return len(to), nil
}

// TestForgedAnswersOfAHubEnd pulls from a hub that answers in every wrong way that was thought of. Each pull ends in an error of a
// line, and nothing is written but below the model's folder.
func TestForgedAnswersOfAHubEnd(t *testing.T) {
	const list = "/api/models/owner/model/tree/main"
	entry := func(path, size string) string {
		name, _ := json.Marshal(path)
		return fmt.Sprintf(`[{"type": "file", "path": %s, "size": %s, "lfs": {"oid": "%064d"}}]`, name, size, 1)
	}
	endless := func(w http.ResponseWriter, what string) {
		for text := strings.Repeat(what, 1<<16/len(what)); ; {
			if _, err := io.WriteString(w, text); err != nil {
				return
			}
		}
	}
	type answer func(w http.ResponseWriter, r *http.Request)
	var bomb bytes.Buffer // 256 MiB of zeros in a quarter of a megabyte
	inflated := gzip.NewWriter(&bomb)
	io.CopyN(inflated, zeros{}, 256<<20)
	inflated.Close()
	packed := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Write(bomb.Bytes())
	}
	text := func(s string) answer { return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, s) } }
	to := func(url string) answer {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, url, http.StatusFound) }
	}
	for _, c := range []struct {
		name       string
		list, file answer
		want       string
	}{
		{"a list without an end", func(w http.ResponseWriter, _ *http.Request) { endless(w, "[") }, nil, ""},
		{"a list of one string", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `["`); endless(w, "a") }, nil, ""},
		{"no list", text(`{"error": "x"}`), nil, "json"},
		{"nothing", text(""), nil, "EOF"},
		{"pages that lead to themselves", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", `<`+r.URL.String()+`>; rel="next"`)
			io.WriteString(w, "[]")
		}, nil, "pages"},
		{"a byte now and then", func(w http.ResponseWriter, r *http.Request) {
			for {
				if _, err := io.WriteString(w, " "); err != nil || r.Context().Err() != nil {
					return
				}
				w.(http.Flusher).Flush()
				time.Sleep(20 * time.Millisecond)
			}
		}, nil, "takes more than"},
		{"a packed list that grows", packed, nil, ""},
		{"a packed file that grows", text(entry("m.gguf", "4")), packed, "more than the 4 bytes"},
		{"come again in a year", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "31536000")
			w.WriteHeader(http.StatusTooManyRequests)
		}, nil, "come again in"},
		{"a page elsewhere", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", `<http://example.com/>; rel="next"`)
			io.WriteString(w, "[]")
		}, nil, "another host"},
		{"a circle", to(list), nil, "redirects"},
		{"a file of this machine", to("file:///etc/passwd"), nil, "scheme"},
		{"above the folder", text(entry("../../up.gguf", "4")), text("GGUF"), "no GGUF file"},
		{"through the folder", text(entry("a/../../../up.gguf", "4")), text("GGUF"), "no GGUF file"},
		{"from the root", text(entry("/tmp/up.gguf", "4")), text("GGUF"), "no GGUF file"},
		{"escapes", text(entry("a\x1b]0;b\a.gguf", "4")), text("GGUF"), "no GGUF file"},
		{"a zero byte", text(entry("a\x00.gguf", "4")), text("GGUF"), "no GGUF file"},
		{"no name", text(entry(".gguf", "4")), text("GGUF"), "SHA-256"},
		{"a long name", text(entry(strings.Repeat("a", 5000)+".gguf", "4")), text("GGUF"), "no GGUF file"},
		{"less than no bytes", text(entry("m.gguf", "-4")), text("GGUF"), "SHA-256"},
		{"too many bytes to count", text(entry("m.gguf", "9223372036854775808")), text("GGUF"), "json"},
		{"as many bytes as can be counted", text(entry("m.gguf", "9223372036854775807")), text("GGUF"), "ended after 4 of"},
		{"a length that is no length", text(entry("m.gguf", "4")), func(w http.ResponseWriter, _ *http.Request) {
			c, _, _ := w.(http.Hijacker).Hijack()
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nGGUF")
			c.Close()
		}, "Content-Length"},
		{"more than it says", text(entry("m.gguf", "4")), func(w http.ResponseWriter, _ *http.Request) { endless(w, "GGUF") }, "more than the 4 bytes"},
		{"a great length", text(entry("m.gguf", "4")), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "4611686018427387904")
			io.WriteString(w, "GGUFGGUF")
		}, "more than the 4 bytes"},
		{"other bytes", text(entry("m.gguf", "4")), text("GGUF"), "SHA-256"},
		{"headers without an end", text(entry("m.gguf", "4")), func(w http.ResponseWriter, _ *http.Request) {
			c, _, _ := w.(http.Hijacker).Hijack()
			defer c.Close()
			for _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n"); err == nil; {
				_, err = io.WriteString(c, "X: "+strings.Repeat("a", 1<<16)+"\r\n")
			}
		}, ""},
		{"no protocol", text(entry("m.gguf", "4")), func(w http.ResponseWriter, _ *http.Request) {
			c, _, _ := w.(http.Hijacker).Hijack()
			io.WriteString(c, "\x00\xff\r\n\r\n")
			c.Close()
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == list {
					c.list(w, r)
				} else {
					c.file(w, r)
				}
			}))
			defer server.Close()
			root := t.TempDir()
			o := PullOptions{Endpoint: server.URL, Dir: filepath.Join(root, "models", "here"), pause: time.Millisecond}
			if strings.Contains(c.want, "takes more") {
				o.listing = 300 * time.Millisecond
			}
			start := time.Now()
			_, err := Pull(t.Context(), "owner/model", o)
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\n\x1b\x00") {
				t.Errorf("%v, want %q", err, c.want)
			}
			if took := time.Since(start); took > busy.Limit {
				t.Errorf("it took %v", took)
			}
			filepath.WalkDir(root, func(path string, e os.DirEntry, _ error) error {
				if !e.IsDir() && !strings.HasPrefix(path, filepath.Join(root, "models", "here", "owner", "model")) {
					t.Errorf("it wrote %s", path)
				}
				return nil
			})
		})
	}
}

// TestAddressesAndTokensThatAreNoneAreRefusedAtOnce has variables of the environment hold what no request can be made with.
func TestAddressesAndTokensThatAreNoneAreRefusedAtOnce(t *testing.T) {
	for _, c := range [][3]string{
		{"junk", "", "HF_ENDPOINT"}, {" ", "", "HF_ENDPOINT"}, {"ftp://example.com", "", "HF_ENDPOINT"}, {"http://", "", "HF_ENDPOINT"},
		{"http:///x", "", "HF_ENDPOINT"}, {"http://a b", "", "HF_ENDPOINT"}, {"\x1b[31m", "", "HF_ENDPOINT"}, {strings.Repeat("x", 100_000), "", "HF_ENDPOINT"},
		{"http://127.0.0.1:1", "sec\nret", "HF_TOKEN"}, {"http://127.0.0.1:1", "sec\x1bret", "HF_TOKEN"}, {"http://127.0.0.1:1", "sec ret", "HF_TOKEN"},
	} {
		t.Setenv("HF_ENDPOINT", c[0])
		t.Setenv("HF_TOKEN", c[1])
		_, err := Pull(t.Context(), "owner/model", PullOptions{Dir: t.TempDir()})
		if err == nil || !strings.Contains(err.Error(), c[2]) || strings.ContainsAny(err.Error(), "\n\x1b") || strings.Contains(err.Error(), "sec") || len(err.Error()) > 400 {
			t.Errorf("%.40q, token %q: %v", c[0], c[1], err)
		}
	}
}

// FuzzList has a manifest of Ollama and a revision of Hugging Face's cache name files: of none but those in their own folders does a
// model come.
func FuzzList(f *testing.F) {
	dir := f.TempDir()
	ollama, hf := filepath.Join(dir, "ollama"), filepath.Join(dir, "hf")
	for name, value := range map[string]string{"VIBRANT_MODELS": filepath.Join(dir, "own"), "HF_HUB_CACHE": hf, "OLLAMA_MODELS": ollama, "HOME": dir, "USERPROFILE": dir} {
		f.Setenv(name, value)
	}
	manifest, revision := filepath.Join(ollama, "manifests", "r", "o", "n", "t"), filepath.Join(hf, "models--o--m", "refs", "main")
	for _, path := range []string{manifest, revision, filepath.Join(ollama, "blobs", "sha256-aa"), filepath.Join(hf, "models--o--m", "snapshots", "a", "m.gguf"),
		filepath.Join(dir, "out.gguf"), filepath.Join(hf, "out.gguf"), filepath.Join(ollama, "sha256-bb")} {
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path, []byte("GGUF"), 0o600)
		}
		if err != nil {
			f.Fatal(err)
		}
	}
	layer := func(digest string) []byte {
		return []byte(`{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "` + digest + `"}]}`)
	}
	f.Add(layer("sha256:aa"), []byte("a\n"))
	f.Add(layer("../sha256-bb"), []byte("../../.."))
	f.Add(layer(".."), []byte("."))
	f.Add(layer(""), []byte(""))
	f.Add([]byte(`{"layers": [{}, null, {"mediaType": 3}]}`), []byte("a/../../../../"))
	f.Fuzz(func(t *testing.T, m, r []byte) {
		if err := os.WriteFile(manifest, m, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(revision, r, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, m := range List() {
			home := filepath.Join(ollama, "blobs")
			if m.Source == "huggingface" {
				home = filepath.Join(hf, "models--o--m", "snapshots")
			}
			if relative, err := filepath.Rel(home, m.Path); err != nil || !filepath.IsLocal(relative) {
				t.Errorf("%+v is not below %s", m, home)
			}
		}
	})
}
