//go:build linux && (amd64 || arm64) && !nodlopen

// Package dynamic calls the C library of folder csrc, and the CUDA kernels, in a shared library that is found at run time: a program
// without a C compiler (CGO_ENABLED=0) gets by it what cgo links in.
//
// The library is libvibrant.so, which has the CPU's kernels and looks for libvibrant_cuda.so itself, or libvibrant_cuda.so, which has
// both. It is looked for once: the file that VIBRANT_LIBRARY names, else beside the program, in its lib/, in the lib/vibrant/ and
// lib/ of its PREFIX (the program lies in PREFIX/bin), and where the loader looks. A library is taken if it was made for this
// machine, is whole, and agrees in version and ABI.
//
// An operation is called with a frame on Go's heap, its stream's own, which holds its number and its operands. Go's collector does not
// move that heap, and sees what a frame points to until the call returns. The library keeps no address of Go's. It calls Go for streams' own memory alone
// (allocator.go), within calls whose operands all lie on that heap: stacks may move meanwhile.
package dynamic

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	dl "github.com/ebitengine/purego"
)

var names = []string{"libvibrant.so", "libvibrant_cuda.so"}

// functions are what is called by name. Their order is that of the constants.
var functions = []string{
	"vb_call", "vb_status_string", "vb_cuda_library", "vb_driver_report", "vb_cuda_architectures_in_use", "vb_device_count", "vb_device_open", "vb_device_close",
	"vb_device_get_info", "vb_device_memory", "vb_device_driver_error", "vb_alloc", "vb_free", "vb_memory_check", "vb_alloc_host", "vb_free_host",
	"vb_stream_create_with", "vb_stream_destroy", "vb_stream_synchronize", "vb_stream_handle", "vb_stream_invalid_argument", "vb_last_kernel", "vb_memcpy", "vb_memset",
	"vb_event_create", "vb_event_destroy", "vb_event_record", "vb_event_synchronize", "vb_event_done", "vb_event_elapsed", "vb_stream_wait",
	"vb_graph_begin", "vb_graph_end", "vb_graph_update", "vb_graph_launch", "vb_graph_prepare", "vb_graph_destroy", "vb_weight_packed_size",
	"vb_communicator_create", "vb_communicator_destroy", "vb_all_reduce", "vb_all_reduce_rows", "vb_linear_all_reduce",
	"vb_all_gather", "vb_broadcast", "vb_send",
	"vb_nccl", "vb_unique_id", "vb_communicator_join", "vb_communicator_abort",
	"vb_ptx_invalid", "vb_ptx_name", "vb_ptx_launch", "vb_ptx_emit", "vb_ptx_free",
}

const (
	fnCall = iota
	fnStatusString
	fnCUDALibrary
	fnDriverReport
	fnCUDAArchitectures
	fnDeviceCount
	fnDeviceOpen
	fnDeviceClose
	fnDeviceGetInfo
	fnDeviceMemory
	fnDeviceDriverError
	fnAlloc
	fnFree
	fnMemoryCheck
	fnAllocHost
	fnFreeHost
	fnStreamCreate
	fnStreamDestroy
	fnStreamSynchronize
	fnStreamHandle
	fnStreamInvalidArgument
	fnLastKernel
	fnMemcpy
	fnMemset
	fnEventCreate
	fnEventDestroy
	fnEventRecord
	fnEventSynchronize
	fnEventDone
	fnEventElapsed
	fnStreamWait
	fnGraphBegin
	fnGraphEnd
	fnGraphUpdate
	fnGraphLaunch
	fnGraphPrepare
	fnGraphDestroy
	fnWeightPackedSize
	fnCommunicatorCreate
	fnCommunicatorDestroy
	fnAllReduce
	fnAllReduceRows
	fnLinearAllReduce
	fnAllGather
	fnBroadcast
	fnSend
	fnNCCL
	fnUniqueID
	fnCommunicatorJoin
	fnCommunicatorAbort
	fnPTXInvalid
	fnPTXName
	fnPTXLaunch
	fnPTXEmit
	fnPTXFree
)

// library is what was found: the addresses of functions, or why there is none.
type library struct {
	path   string // "" where none was taken
	report string // each place with the reason
	cuda   bool   // it holds CUDA kernels itself
	at     []uintptr
}

var found = sync.OnceValue(find)

// Library says where the library of this process is, or each place that was looked at and why none was taken there.
func Library() string {
	l := found()
	if l.path != "" {
		return l.path
	}
	return l.report
}

// CUDALibrary says where the CUDA kernels of this process are, or why there are none.
func CUDALibrary() string {
	l := found()
	if l.path == "" {
		return l.report
	}
	kernels := text(invoke(fnCUDALibrary))
	if l.cuda { // it calls itself the program that its kernels are linked into
		kernels = strings.Replace(kernels, "linked into this program", l.path, 1)
	}
	return kernels
}

func find() *library {
	l := &library{}
	if named := os.Getenv("VIBRANT_LIBRARY"); named != "" {
		if _, err := os.Stat(named); err != nil {
			l.refuse(named, "no such file (VIBRANT_LIBRARY names it): correct the path or unset it")
		} else {
			if !strings.Contains(named, "/") {
				named = "./" + named // a file too, and not what the loader finds
			}
			l.take(named)
		}
		return l
	}
	if program, err := os.Readlink("/proc/self/exe"); err == nil {
		folder := filepath.Dir(program)
		for _, below := range []string{"", "lib", "../lib/vibrant", "../lib"} {
			for _, name := range names {
				if path := filepath.Join(folder, below, name); exists(path) && l.take(path) {
					return l
				}
			}
		}
	}
	for _, name := range names {
		if l.take(name) {
			return l
		}
	}
	if l.report == "" {
		l.report = fmt.Sprintf("no %s beside the program, in lib, ../lib/vibrant or ../lib from there, or where the loader looks (VIBRANT_LIBRARY names one)",
			strings.Join(names, " or "))
	}
	return l
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func (l *library) refuse(path, reason string) {
	if l.report != "" {
		l.report += "; "
	}
	l.report += path + ": " + reason
}

// damaged says why the file is no library that the loader may map, or "". The loader itself dies of a file that was cut short.
func damaged(path string) string {
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return "is no regular file: name the library itself" // opening a pipe would wait
	}
	file, err := os.Open(path)
	if err != nil {
		return "cannot be read: let this user read it"
	}
	defer file.Close()
	var header elf.Header64
	size, err := file.Stat()
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&header)), unsafe.Sizeof(header))
	if _, e := file.ReadAt(raw, 0); err != nil || e != nil || string(header.Ident[:4]) != elf.ELFMAG ||
		elf.Class(header.Ident[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Type(header.Type) != elf.ET_DYN {
		return "is no shared library of 64 bits: install that of this version"
	}
	machine, name := elf.EM_X86_64, "x86-64"
	if runtime.GOARCH == "arm64" {
		machine, name = elf.EM_AARCH64, "aarch64"
	}
	if elf.Machine(header.Machine) != machine {
		return "is for another processor, not " + name + ": install the archive for this one"
	}
	if !isWhole(file, uint64(size.Size()), &header) {
		return "is cut short: copy it again"
	}
	return ""
}

// isWhole tells whether a file has all that its header speaks of: sections, which a library may lack, and segments.
func isWhole(file io.ReaderAt, size uint64, header *elf.Header64) bool {
	if size < header.Shoff+uint64(header.Shentsize)*uint64(header.Shnum) {
		return false
	}
	for i := range int64(header.Phnum) {
		var segment elf.Prog64
		raw := unsafe.Slice((*byte)(unsafe.Pointer(&segment)), unsafe.Sizeof(segment))
		if _, err := file.ReadAt(raw, int64(header.Phoff)+i*int64(len(raw))); err != nil || size < segment.Off+segment.Filesz {
			return false
		}
	}
	return true
}

// take takes the library at a path, or what the loader finds by a bare name; it reports why not.
func (l *library) take(path string) bool {
	file := strings.Contains(path, "/")
	if file {
		if reason := damaged(path); reason != "" {
			l.refuse(path, reason)
			return false
		}
	}
	handle, err := dl.Dlopen(path, dl.RTLD_NOW|dl.RTLD_LOCAL)
	if err != nil {
		if file {
			l.refuse(path, err.Error())
		}
		return false
	}
	reason := l.look(handle)
	if reason != "" {
		l.refuse(path, reason)
		_ = dl.Dlclose(handle) // its memory is all that is lost
		return false
	}
	l.path = path
	return true
}

// look finds the functions of a library; it returns why the library is none for this program, or "".
func (l *library) look(handle uintptr) string {
	has, err := dl.Dlsym(handle, "vb_version")
	if err != nil {
		return "is no library of Vibrant: name libvibrant.so or libvibrant_cuda.so"
	}
	if v, _, _ := dl.SyscallN(has); text(v) != version {
		return fmt.Sprintf("is of version %.40s, this program of %s: install both of one version", text(v), version)
	}
	number, err := dl.Dlsym(handle, "vb_call_abi")
	if err == nil {
		if n, _, _ := dl.SyscallN(number); n != abi {
			err = errors.New("another number")
		}
	}
	l.at = make([]uintptr, len(functions))
	for i, name := range functions {
		if err == nil {
			l.at[i], err = dl.Dlsym(handle, name)
		}
	}
	if err != nil {
		return "has another ABI than this program: build both from one source"
	}
	_, err = dl.Dlsym(handle, "vb_library_of_cuda")
	l.cuda = err == nil
	return ""
}

// invoke calls a function of the library that was found.
//
//go:uintptrescapes
func invoke(function int, args ...uintptr) uintptr {
	r, _, _ := dl.SyscallN(found().at[function], args...)
	return r
}

// text copies a C string at an address.
func text(address uintptr) string {
	p := *(*unsafe.Pointer)(unsafe.Pointer(&address)) // memory of C
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}
