package gpu

import "github.com/vibrant-ml/vibrant/internal/backend/kernel"

// streamMemory gives the backend's side of a stream memory of the pool: what its kernels need between themselves. It is called while
// the stream is made or ended, and by calls that enqueue work, which hold the stream's lock. So it waits for no lock that
// Device.Close may hold while it waits for the stream's.
type streamMemory struct{ *stream }

// Alloc returns memory of exactly that size: drivers hand out 2 MiB at least where many streams could share them.
func (m *streamMemory) Alloc(bytes int64) (kernel.Ptr, error) {
	b, err := m.dev.pool.reserve(m.stream, bytes, within)
	if err != nil {
		return nil, err
	}
	if m.own == nil {
		m.own = map[kernel.Ptr]*block{}
	}
	m.own[b.ptr] = b
	return b.ptr, nil
}

// Free gives memory back. Graphs that were captured since it was allocated keep it.
func (m *streamMemory) Free(p kernel.Ptr) {
	if b := m.own[p]; b != nil {
		delete(m.own, p)
		m.dev.pool.unreserve(b, within)
	}
}
