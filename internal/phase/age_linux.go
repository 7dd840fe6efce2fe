package phase

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// age returns the time since the process began. The kernel tells the beginning in steps of 10 ms: all lines share the error.
func age() time.Duration {
	const startTime, tick = 22, 10 * time.Millisecond // of /proc/self/stat: proc(5)
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
	line, _ := os.ReadFile("/proc/self/stat")
	fields := strings.Fields(string(line[strings.LastIndexByte(string(line), ')')+1:])) // field 2 may hold spaces
	var ticks int64
	if at := startTime - 3; at < len(fields) {
		ticks, _ = strconv.ParseInt(fields[at], 10, 64)
	}
	return time.Duration(now.Nano()) - time.Duration(ticks)*tick
}
