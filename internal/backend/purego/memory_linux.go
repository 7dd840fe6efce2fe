package purego

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
)

// hostMemory returns what the kernel says can be allocated without swapping, and the size of main memory.
func hostMemory() (free, total int64) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return unknownMemory, unknownMemory
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		var name string
		var kib int64
		if n, _ := fmt.Sscan(lines.Text(), &name, &kib); n != 2 {
			continue
		}
		switch name {
		case "MemTotal:":
			total = kib << 10
		case "MemAvailable:":
			return kib << 10, total
		}
	}
	return unknownMemory, unknownMemory
}
