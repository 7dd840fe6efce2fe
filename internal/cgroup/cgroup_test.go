package cgroup

import (
	"math"
	"testing"
	"testing/fstest"
)

func TestTheLeastLimitOfTheCgroupsCounts(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for name, c := range map[string]struct {
		files fstest.MapFS
		own   string
		want  int64
	}{
		"none":                {fstest.MapFS{}, "0::/\n", math.MaxInt64},
		"container":           {fstest.MapFS{"memory.max": file("1000\n")}, "0::/\n", 1000},
		"unlimited":           {fstest.MapFS{"memory.max": file("max\n")}, "0::/\n", math.MaxInt64},
		"slice":               {fstest.MapFS{"a/b/memory.max": file("max\n"), "a/memory.max": file("2000\n")}, "0::/a/b\n", 2000},
		"the group's own":     {fstest.MapFS{"a/b/memory.max": file("500\n"), "a/memory.max": file("2000\n")}, "0::/a/b\n", 500},
		"another's":           {fstest.MapFS{"c/memory.max": file("500\n")}, "0::/a\n", math.MaxInt64},
		"names of outside":    {fstest.MapFS{"memory.max": file("700\n")}, "0::/system/docker/1\n", 700},
		"version 1":           {fstest.MapFS{"memory/a/memory.limit_in_bytes": file("300\n")}, "5:cpu:/x\n4:memory:/a\n", 300},
		"version 1, together": {fstest.MapFS{"memory/memory.limit_in_bytes": file("300\n")}, "4:hugetlb,memory:/a\n", 300},
	} {
		if got := limitIn(c.files, c.own); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
