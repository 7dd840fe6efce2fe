// Package cgroup reads what Linux's control groups, and so containers, allow a process.
package cgroup

import (
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// MemoryLimit returns the memory that this process may have by its cgroups.
var MemoryLimit = sync.OnceValue(func() int64 {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return math.MaxInt64
	}
	return limitIn(os.DirFS("/sys/fs/cgroup"), string(own))
})

// limitIn returns the least limit of the groups that a process is in, which /proc/self/cgroup names, and of those above them, of
// version 2 or 1. In a container the groups' folder may be the container's own, and the names those outside: then the root's counts.
func limitIn(groups fs.FS, own string) int64 {
	limit := int64(math.MaxInt64)
	take := func(file string) {
		if text, err := fs.ReadFile(groups, file); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 { // "max" is none
				limit = min(limit, n)
			}
		}
	}
	for line := range strings.Lines(own) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 || parts[1] != "" && !slices.Contains(strings.Split(parts[1], ","), "memory") {
			continue
		}
		folder, file := ".", "memory.max"
		if parts[1] != "" {
			folder, file = "memory", "memory.limit_in_bytes"
		}
		at := path.Clean("/" + parts[2])
		for {
			take(path.Join(folder, at, file))
			if at == "/" {
				break
			}
			at = path.Dir(at)
		}
	}
	return limit
}
