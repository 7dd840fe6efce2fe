//go:build unix

package gguf

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vibrant-ml/vibrant/internal/check/busy"
)

func TestPipesAndDevicesAreRefusedAtOnce(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	for _, path := range []string{pipe, "/dev/zero", t.TempDir()} {
		done := make(chan error, 1)
		go func() {
			_, err := Open(path)
			done <- err
		}()
		select {
		case err := <-done:
			if !errors.Is(err, ErrNotGGUF) {
				t.Errorf("%s: %v", path, err)
			}
		case <-time.After(busy.Limit):
			t.Errorf("%s: Open hangs", path)
		}
	}
}
