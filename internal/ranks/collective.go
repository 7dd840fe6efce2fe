package ranks

import "unsafe"

// Collectives of host memory, which every rank calls with the same sizes on the same channel. Through rank 0: it gets what each
// rank has and sends each the result, which is so the same bits for all.

// AllReduce adds up x of all ranks, in their order, and puts the sum in its place.
func (g *Group) AllReduce(channel uint32, x []float32) error {
	if len(x) == 0 {
		return nil
	}
	if g.Rank() > 0 {
		if err := g.Send(0, channel, bytesOf(x)); err != nil {
			return err
		}
		return g.Receive(0, channel, bytesOf(x))
	}
	part := make([]float32, min(len(x), maxFrame/4))
	for lo := 0; lo < len(x); lo += len(part) {
		sum := x[lo:min(len(x), lo+len(part))]
		for rank := 1; rank < g.Size(); rank++ {
			own := part[:len(sum)]
			if err := g.Receive(rank, channel, bytesOf(own)); err != nil {
				return err
			}
			for i, v := range own {
				sum[i] += v
			}
		}
		if err := g.toAll(channel, bytesOf(sum)); err != nil {
			return err
		}
	}
	return nil
}

// AllGather fills parts, one of each rank, of which this one's is there already.
func (g *Group) AllGather(channel uint32, parts [][]byte) error {
	if g.Rank() > 0 {
		if err := g.Send(0, channel, parts[g.Rank()]); err != nil {
			return err
		}
		for rank, part := range parts {
			if rank == g.Rank() {
				continue
			}
			if err := g.Receive(0, channel, part); err != nil {
				return err
			}
		}
		return nil
	}
	for rank := 1; rank < g.Size(); rank++ {
		if err := g.Receive(rank, channel, parts[rank]); err != nil {
			return err
		}
	}
	for to := 1; to < g.Size(); to++ {
		for rank, part := range parts {
			if rank == to {
				continue
			}
			if err := g.Send(to, channel, part); err != nil {
				return err
			}
		}
	}
	return nil
}

// Broadcast copies data of one rank to that of all others.
func (g *Group) Broadcast(channel uint32, data []byte, root int) error {
	if g.Rank() == 0 {
		if root != 0 {
			if err := g.Receive(root, channel, data); err != nil {
				return err
			}
		}
		return g.toAll(channel, data)
	}
	if g.Rank() == root {
		if err := g.Send(0, channel, data); err != nil {
			return err
		}
	}
	return g.Receive(0, channel, data)
}

// toAll sends data of rank 0 to each other rank.
func (g *Group) toAll(channel uint32, data []byte) error {
	for rank := 1; rank < g.Size(); rank++ {
		if err := g.Send(rank, channel, data); err != nil {
			return err
		}
	}
	return nil
}

// bytesOf returns the memory of x: ranks are of one byte order, as every machine that this module supports.
func bytesOf(x []float32) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 4*len(x))
}
