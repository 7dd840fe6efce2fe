package vibrant

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/vibrant-ml/vibrant/internal/language/engine"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
)

// ErrCacheMismatch says that a cache was written by another model, cache type, device or build, or is damaged: the session holds
// nothing, and computes its next prompt.
var ErrCacheMismatch = errors.New("the cache does not fit")

// A written cache is this mark, the length of a cacheHeader in JSON and the header, the ids, the cache as the device has it, and
// the SHA-256 of all before it. Numbers are little-endian.
const (
	cacheMark     = "VIBRKV01"
	longestHeader = 64 << 10
	sampledBytes  = 64 // of each tensor, at three places
)

// cacheHeader is what has to agree.
type cacheHeader struct {
	Model  string `json:"model"`   // fingerprint of its file
	KVType KVType `json:"kv_type"` // of the cache
	Build  string `json:"build"`   // version and revision of the program's Vibrant, and the kernels
	Tokens int    `json:"tokens"`

	Adapters []string    `json:"adapters,omitempty"` // that were active
	Past     engine.Past `json:"past"`
}

// WriteCache writes the keys and values of what the session has computed, so that ReadCache can go on without computing it again:
// about Info.CacheBytesPerToken for each token of Stats.ContextUsed.
//
// Likely errors: ErrBusy, ErrClosed, those of w.
func (s *Session) WriteCache(w io.Writer) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.end()
	ids := s.engine.Tokens()
	header, err := s.cacheHeader(len(ids))
	if err != nil {
		return err
	}
	header.Past = s.engine.Past()
	text, err := json.Marshal(header)
	if err != nil {
		return err
	}
	sum := sha256.New()
	out := io.MultiWriter(w, sum)
	for _, part := range []any{[]byte(cacheMark), uint32(len(text)), text, ids} {
		if err := binary.Write(out, binary.LittleEndian, part); err != nil {
			return err
		}
	}
	if err := s.engine.WriteCache(out); err != nil {
		return err
	}
	_, err = w.Write(sum.Sum(nil))
	return err
}

// ReadCache puts what WriteCache wrote in place of what the session has computed. A prompt that begins with the same tokens is computed
// from where they end. The conversation's history is neither used nor changed.
//
// Likely errors: ErrCacheMismatch, ErrBusy, ErrClosed, those of r. The session goes on after each of them, with nothing computed.
func (s *Session) ReadCache(r io.Reader) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.end()
	s.engine.Reset()
	sum := sha256.New()
	in := io.TeeReader(r, sum)
	header, err := readCacheHeader(in)
	if err != nil {
		return err
	}
	want, err := s.cacheHeader(header.Tokens)
	if err != nil {
		return err
	}
	for _, x := range []struct{ what, got, want string }{
		{"another model file", header.Model, want.Model},
		{"a cache of type " + shown(string(header.KVType)), string(header.KVType), string(want.KVType)},
		{"other adapters", strings.Join(header.Adapters, "\n"), strings.Join(want.Adapters, "\n")},
		{"another build or device, " + shown(header.Build), header.Build, want.Build},
	} {
		if x.got != x.want {
			return fmt.Errorf("%w: it is of %s", ErrCacheMismatch, x.what)
		}
	}
	if header.Tokens < 0 || header.Tokens > s.model.config.context {
		return fmt.Errorf("%w: it has %d tokens, the context %d", ErrCacheMismatch, header.Tokens, s.model.config.context)
	}
	if header.Tokens == 0 {
		return nil
	}
	ids := make([]int32, header.Tokens)
	if err := binary.Read(in, binary.LittleEndian, ids); err != nil {
		return fmt.Errorf("%w: its ids are cut short", ErrCacheMismatch)
	}
	if err := s.engine.ReadCache(in, ids, header.Past, func() error { return checkSum(r, sum) }); err != nil {
		return fmt.Errorf("%w: %v", ErrCacheMismatch, err)
	}
	return nil
}

func readCacheHeader(in io.Reader) (header cacheHeader, err error) {
	begin := make([]byte, len(cacheMark)+4)
	if _, err := io.ReadFull(in, begin); err != nil || string(begin[:len(cacheMark)]) != cacheMark {
		return header, fmt.Errorf("%w: it does not begin as one", ErrCacheMismatch)
	}
	n := binary.LittleEndian.Uint32(begin[len(cacheMark):])
	if n > longestHeader {
		return header, fmt.Errorf("%w: its header has %d bytes", ErrCacheMismatch, n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(in, text); err != nil {
		return header, fmt.Errorf("%w: its header is cut short", ErrCacheMismatch)
	}
	if err := json.Unmarshal(text, &header); err != nil {
		return header, fmt.Errorf("%w: its header is damaged", ErrCacheMismatch)
	}
	return header, nil
}

// checkSum compares what was read with the sum that follows.
func checkSum(r io.Reader, sum hash.Hash) error {
	want := make([]byte, sha256.Size)
	if _, err := io.ReadFull(r, want); err != nil {
		return errors.New("its checksum is missing")
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return errors.New("its checksum differs")
	}
	return nil
}

func shown(text string) string {
	if len(text) > 100 {
		text = text[:100] + "..."
	}
	return fmt.Sprintf("%q", text)
}

// cacheHeader describes a cache of the session. Adapters are known by their path, size and time of change.
func (s *Session) cacheHeader(tokens int) (cacheHeader, error) {
	m := s.model
	var adapters []string
	for _, a := range s.adapters {
		st, err := os.Stat(a.Adapter.Name())
		if err != nil {
			return cacheHeader{}, err
		}
		adapters = append(adapters, fmt.Sprint(a.Adapter.Name(), " ", a.Scale, " ", st.Size(), " ", st.ModTime().UnixNano()))
	}
	m.fingerprintOnce.Do(func() {
		if m.fingerprint == "" && m.fingerprintErr == nil { // of a GPU's model it was taken while the file was open
			m.fingerprint, m.fingerprintErr = fingerprint(m.file)
		}
	})
	if m.fingerprintErr != nil {
		return cacheHeader{}, m.fingerprintErr
	}
	build := fmt.Sprintf("vibrant %s%s", Version, revision())
	for i, d := range m.devices {
		device := d.Info()
		build += fmt.Sprintf(", %s kernels, %s, %s", device.Backend, device.Name, device.Features)
		if m.where.Layers != nil {
			build += fmt.Sprintf(", %d layers in %d runs", m.where.Layers[i], max(1, m.where.Turns))
		}
	}
	if m.where.Experts > 0 {
		build += fmt.Sprintf(", experts of %d on the first", m.where.Experts)
	}
	return cacheHeader{Model: m.fingerprint, KVType: kvName(m.kvType), Build: build, Tokens: tokens, Adapters: adapters}, nil
}

// revision names the commit that the program was built from, where Go knows it.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var text string
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" || s.Key == "vcs.modified" && s.Value == "true" {
			text += " " + s.Value
		}
	}
	return text
}

// fingerprint is a hash of a file's size and metadata, and of its tensors' names, types and shapes. Of each tensor it takes some bytes at
// the beginning, in the middle and at the end: all of a large file would take seconds to read.
func fingerprint(f *gguf.File) (string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%d\n", f.Size)
	for _, kv := range metadata(f) {
		fmt.Fprintf(sum, "%q %s %d %v\n", kv.Key, kv.Type, kv.Len, kv.Value)
	}
	buffer := make([]byte, sampledBytes)
	for _, t := range f.Tensors() {
		fmt.Fprintf(sum, "%s %v %v\n", t.Name, t.Type, t.Dims)
		for _, at := range slices.Compact([]int64{0, t.Bytes / 2, max(0, t.Bytes-sampledBytes)}) {
			part := buffer[:min(sampledBytes, t.Bytes-at)]
			if err := f.ReadTensor(&t, part, at); err != nil {
				return "", err
			}
			sum.Write(part)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
