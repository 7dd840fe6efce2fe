//go:build linux && (amd64 || arm64) && !nodlopen

package dynamic

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// communicator joins streams; its errors say the driver's number of the first rank's device that has one.
type communicator struct {
	p       kernel.Ptr
	streams []*stream
}

// addresses are those of each rank's memory, as C takes them.
type addresses [kernel.MaxRanks]kernel.Ptr

func addressesOf(pointers []kernel.Ptr) *addresses {
	a := &addresses{}
	copy(a[:], pointers)
	return a
}

func (d *device) NewCommunicator(streams []kernel.Stream) (kernel.Communicator, error) {
	if len(streams) > kernel.MaxRanks {
		return nil, fmt.Errorf("communicator of %d streams, %d at most: %w", len(streams), kernel.MaxRanks, kernel.ErrInvalid)
	}
	c, all := &communicator{}, &addresses{}
	for i, k := range streams {
		s, ok := k.(*stream)
		if !ok {
			return nil, errForeign("stream")
		}
		c.streams = append(c.streams, s)
		all[i] = s.p
	}
	err := c.check("communicator", invoke(fnCommunicatorCreate, uintptr(unsafe.Pointer(&c.p)), uintptr(unsafe.Pointer(all)), uintptr(len(streams))))
	if errors.Is(err, kernel.ErrUnsupported) {
		return nil, fmt.Errorf("two of the GPUs cannot reach each other's memory (no peer access): %w", kernel.ErrUnsupported)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (c *communicator) check(op string, status uintptr) error {
	for _, s := range c.streams {
		if int32(invoke(fnDeviceDriverError, uintptr(s.device))) != 0 {
			return s.check(op, status)
		}
	}
	return check(op, status, c.streams[0].device)
}

func (c *communicator) AllReduce(out, in, add []kernel.Ptr, n int, rounded bool) error {
	o, i, adds := addressesOf(out), addressesOf(in), (*addresses)(nil)
	if add != nil {
		adds = addressesOf(add)
	}
	return c.check("all reduce", invoke(fnAllReduce, uintptr(unsafe.Pointer(o)), uintptr(unsafe.Pointer(i)), uintptr(unsafe.Pointer(adds)),
		uintptr(n), uintptr(truth(rounded)), uintptr(c.p)))
}

// sumOfRows is vb_sum_of_rows.
type sumOfRows struct {
	size                              uintptr
	add, norm, normed                 addresses
	n, cols                           int64
	from, prepared, parted, addParted int32
}

func (c *communicator) AllReduceRows(out, in []kernel.Ptr, rows *kernel.SumOfRows) error {
	o, i := addressesOf(out), addressesOf(in)
	s := &sumOfRows{unsafe.Sizeof(sumOfRows{}), *addressesOf(rows.Add), *addressesOf(rows.Norm), *addressesOf(rows.Normed), int64(rows.N), int64(rows.Cols),
		int32(rows.From), 0, truth(rows.Parted), truth(rows.AddParted)}
	err := c.check("all reduce rows", invoke(fnAllReduceRows, uintptr(unsafe.Pointer(o)), uintptr(unsafe.Pointer(i)), uintptr(unsafe.Pointer(s)), uintptr(c.p)))
	rows.Prepared, rows.Parted = s.prepared != 0, s.parted != 0
	return err
}

// sumOfProducts is vb_sum_of_products.
type sumOfProducts struct {
	size         uintptr
	add, x, bias addresses
	w            [kernel.MaxRanks]cWeight
	n            int64
}

func (c *communicator) LinearAllReduce(out, product []kernel.Ptr, sum *kernel.SumOfProducts) error {
	o, p := addressesOf(out), addressesOf(product)
	s := &sumOfProducts{size: unsafe.Sizeof(sumOfProducts{}), add: *addressesOf(sum.Add), x: *addressesOf(sum.X), bias: *addressesOf(sum.Bias), n: int64(sum.N)}
	for i, w := range sum.W {
		s.w[i] = asWeight(w)
	}
	return c.check("linear all reduce", invoke(fnLinearAllReduce, uintptr(unsafe.Pointer(o)), uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(s)), uintptr(c.p)))
}

// FeedForwardPart is FeedForward without X.
func (s *stream) FeedForwardPart(args *kernel.FeedForwardArgs) error {
	args.X = nil
	return s.FeedForward(args)
}

func (c *communicator) AllGather(out, in []kernel.Ptr, rows int, cols []int) error {
	o, i, each := addressesOf(out), addressesOf(in), make([]int64, len(cols))
	for r, n := range cols {
		each[r] = int64(n)
	}
	return c.check("all gather", invoke(fnAllGather, uintptr(unsafe.Pointer(o)), uintptr(unsafe.Pointer(i)), uintptr(rows),
		uintptr(unsafe.Pointer(unsafe.SliceData(each))), uintptr(c.p)))
}

// RanksUsable says why GPUs of processes cannot exchange: there is no NCCL, or it is too old.
func (d *device) RanksUsable() error {
	usable := new(int32)
	report := text(invoke(fnNCCL, uintptr(unsafe.Pointer(usable))))
	if d.Info().HostMemory {
		return fmt.Errorf("NCCL is for GPUs: %w", kernel.ErrUnsupported)
	}
	if *usable == 0 {
		return fmt.Errorf("%s: %w", report, kernel.ErrUnsupported)
	}
	return nil
}

func (d *device) RanksID(id []byte) error {
	return check("id of ranks", invoke(fnUniqueID, uintptr(unsafe.Pointer(unsafe.SliceData(id)))), d.p)
}

func (d *device) JoinRanks(k kernel.Stream, rank, ranks int, id []byte) (kernel.RankCommunicator, error) {
	s, ok := k.(*stream)
	if !ok {
		return nil, errForeign("stream")
	}
	c := &communicator{streams: []*stream{s}}
	status := invoke(fnCommunicatorJoin, uintptr(unsafe.Pointer(&c.p)), uintptr(s.p), uintptr(rank), uintptr(ranks), uintptr(unsafe.Pointer(unsafe.SliceData(id))))
	if err := check("join ranks by NCCL", status, s.device); err != nil {
		return nil, fmt.Errorf("%w (%s)", err, text(invoke(fnStreamInvalidArgument, uintptr(s.p))))
	}
	return c, nil
}

// Abort ends work that waits for a rank which is gone.
func (c *communicator) Abort() { invoke(fnCommunicatorAbort, uintptr(c.p)) }

func (c *communicator) Broadcast(data []kernel.Ptr, words, root int) error {
	return c.check("broadcast", invoke(fnBroadcast, uintptr(unsafe.Pointer(addressesOf(data))), uintptr(words), uintptr(root), uintptr(c.p)))
}

func (c *communicator) Send(out, in kernel.Ptr, words, from, to int) error {
	return c.check("send", invoke(fnSend, uintptr(out), uintptr(in), uintptr(words), uintptr(from), uintptr(to), uintptr(c.p)))
}

func (c *communicator) Close() error {
	invoke(fnCommunicatorDestroy, uintptr(c.p))
	c.p = nil
	return nil
}
