//go:build cgo

package csrc

/*
#include "sum_of_rows.h"

// Arrays of addresses go by value, as structs do.
typedef struct addresses { void *at[VB_MAX_RANKS]; } addresses;

static vb_status communicator_create(vb_communicator **c, addresses streams, int ranks) {
    return vb_communicator_create(c, (vb_stream *const *)streams.at, ranks);
}
static vb_status all_reduce(addresses out, addresses in, addresses add, int adds, int64_t n, int rounded, vb_communicator *c) {
    const float *const *more = adds ? (const float *const *)add.at : NULL;
    return vb_all_reduce((float *const *)out.at, (const float *const *)in.at, more, n, rounded, c);
}
static vb_status all_reduce_rows(addresses out, addresses in, vb_sum_of_rows rows, int *prepared, int *parted,
                                 vb_communicator *c) {
    const vb_status s = vb_all_reduce_rows((float *const *)out.at, (const float *const *)in.at, &rows, c);
    *prepared = rows.prepared, *parted = rows.parted;
    return s;
}
static vb_status linear_all_reduce(addresses out, addresses product, vb_sum_of_products sum, vb_communicator *c) {
    return vb_linear_all_reduce((float *const *)out.at, (float *const *)product.at, &sum, c);
}
static vb_status all_gather(addresses out, addresses in, int64_t rows, const int64_t *cols, vb_communicator *c) {
    return vb_all_gather((float *const *)out.at, (const float *const *)in.at, rows, cols, c);
}
static vb_status broadcast(addresses data, int64_t words, int root, vb_communicator *c) {
    return vb_broadcast((void *const *)data.at, words, root, c);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// communicator joins streams; its errors say the driver's number of the first rank's device that has one.
type communicator struct {
	p       *C.vb_communicator
	streams []*stream
}

func (d *device) NewCommunicator(streams []kernel.Stream) (kernel.Communicator, error) {
	if len(streams) > kernel.MaxRanks {
		return nil, fmt.Errorf("communicator of %d streams, %d at most: %w", len(streams), kernel.MaxRanks, kernel.ErrInvalid)
	}
	c := &communicator{}
	var addresses C.addresses
	for i, k := range streams {
		s, ok := k.(*stream)
		if !ok {
			return nil, errForeign("stream")
		}
		c.streams = append(c.streams, s)
		addresses.at[i] = unsafe.Pointer(s.p)
	}
	err := c.check("communicator", C.communicator_create(&c.p, addresses, C.int(len(streams))))
	if errors.Is(err, kernel.ErrUnsupported) {
		return nil, fmt.Errorf("two of the GPUs cannot reach each other's memory (no peer access): %w", kernel.ErrUnsupported)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (c *communicator) check(op string, status C.vb_status) error {
	if status == C.VB_OK {
		return nil
	}
	for _, s := range c.streams {
		if C.vb_device_driver_error(s.device) != 0 {
			return s.check(op, status)
		}
	}
	return check(op, status, c.streams[0].device)
}

func addressesOf(pointers []kernel.Ptr) (a C.addresses) {
	copy(a.at[:], pointers)
	return a
}

func (c *communicator) AllReduce(out, in, add []kernel.Ptr, n int, rounded bool) error {
	adds := truth(add != nil)
	return c.check("all reduce", C.all_reduce(addressesOf(out), addressesOf(in), addressesOf(add), adds, C.int64_t(n), truth(rounded), c.p))
}

func (c *communicator) AllReduceRows(out, in []kernel.Ptr, rows *kernel.SumOfRows) error {
	r := C.vb_sum_of_rows{size: C.sizeof_vb_sum_of_rows, n: C.int64_t(rows.N), cols: C.int64_t(rows.Cols), from: C.vb_half_layer(rows.From),
		parted: truth(rows.Parted), add_parted: truth(rows.AddParted)}
	for i := range out {
		r.add[i] = (*C.float)(rows.Add[i])
		if len(rows.Norm) > 0 {
			r.norm[i], r.normed[i] = (*C.float)(rows.Norm[i]), (*C.float)(rows.Normed[i])
		}
	}
	var prepared, parted C.int
	err := c.check("all reduce rows", C.all_reduce_rows(addressesOf(out), addressesOf(in), r, &prepared, &parted, c.p))
	rows.Prepared, rows.Parted = prepared != 0, parted != 0
	return err
}

func (c *communicator) LinearAllReduce(out, product []kernel.Ptr, sum *kernel.SumOfProducts) error {
	p := C.vb_sum_of_products{size: C.sizeof_vb_sum_of_products, n: C.int64_t(sum.N)}
	for i := range out {
		p.add[i], p.x[i], p.bias[i] = (*C.float)(sum.Add[i]), (*C.float)(sum.X[i]), (*C.float)(sum.Bias[i])
		p.w[i] = weight(sum.W[i])
	}
	return c.check("linear all reduce", C.linear_all_reduce(addressesOf(out), addressesOf(product), p, c.p))
}

// FeedForwardPart is FeedForward without X.
func (s *stream) FeedForwardPart(args *kernel.FeedForwardArgs) error {
	args.X = nil
	return s.FeedForward(args)
}

func (c *communicator) AllGather(out, in []kernel.Ptr, rows int, cols []int) error {
	each := make([]C.int64_t, len(cols))
	for i, n := range cols {
		each[i] = C.int64_t(n)
	}
	return c.check("all gather", C.all_gather(addressesOf(out), addressesOf(in), C.int64_t(rows), &each[0], c.p))
}

// RanksUsable says why GPUs of processes cannot exchange: there is no NCCL, or it is too old.
func (d *device) RanksUsable() error {
	var usable C.int
	report := C.GoString(C.vb_nccl(&usable))
	if d.Info().HostMemory {
		return fmt.Errorf("NCCL is for GPUs: %w", kernel.ErrUnsupported)
	}
	if usable == 0 {
		return fmt.Errorf("%s: %w", report, kernel.ErrUnsupported)
	}
	return nil
}

func (d *device) RanksID(id []byte) error {
	return check("id of ranks", C.vb_unique_id((*C.char)(unsafe.Pointer(unsafe.SliceData(id)))), d.p)
}

func (d *device) JoinRanks(k kernel.Stream, rank, ranks int, id []byte) (kernel.RankCommunicator, error) {
	s, ok := k.(*stream)
	if !ok {
		return nil, errForeign("stream")
	}
	c := &communicator{streams: []*stream{s}}
	status := C.vb_communicator_join(&c.p, s.p, C.int(rank), C.int(ranks), (*C.char)(unsafe.Pointer(unsafe.SliceData(id))))
	if err := check("join ranks by NCCL", status, s.device); err != nil {
		return nil, fmt.Errorf("%w (%s)", err, C.GoString(C.vb_stream_invalid_argument(s.p)))
	}
	return c, nil
}

// Abort ends work that waits for a rank which is gone.
func (c *communicator) Abort() { C.vb_communicator_abort(c.p) }

func (c *communicator) Broadcast(data []kernel.Ptr, words, root int) error {
	return c.check("broadcast", C.broadcast(addressesOf(data), C.int64_t(words), C.int(root), c.p))
}

func (c *communicator) Send(out, in kernel.Ptr, words, from, to int) error {
	return c.check("send", C.vb_send(out, in, C.int64_t(words), C.int(from), C.int(to), c.p))
}

func (c *communicator) Close() error {
	C.vb_communicator_destroy(c.p)
	c.p = nil
	return nil
}
