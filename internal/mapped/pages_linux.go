package mapped

import "golang.org/x/sys/unix"

// largePages asks for pages of 2 MiB where the file system has them (ext4, XFS and tmpfs of today), which a processor reads faster.
// The system then reads as much at a time too. Others ignore the advice.
func largePages(data []byte) { _ = unix.Madvise(data, unix.MADV_HUGEPAGE) }

// populate reads pages and maps them.
func populate(data []byte) error { return unix.Madvise(data, unix.MADV_POPULATE_READ) }
