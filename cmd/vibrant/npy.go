package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"
)

// npyWriter writes a float32 matrix in NumPy's format, version 1.0, row by row:
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
type npyWriter struct {
	w          *bufio.Writer
	rows, cols int
	written    int
}

func newNPYWriter(out io.Writer, rows, cols int) *npyWriter {
	const magic = "\x93NUMPY\x01\x00"
	head := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", rows, cols)
	// The header ends in a newline, and the data starts at a multiple of 64 bytes.
	head += strings.Repeat(" ", 63-(len(magic)+2+len(head))%64) + "\n"
	w := bufio.NewWriterSize(out, 1<<16)
	w.WriteString(magic)
	binary.Write(w, binary.LittleEndian, uint16(len(head)))
	w.WriteString(head)
	return &npyWriter{w: w, rows: rows, cols: cols}
}

func (n *npyWriter) writeRow(row []float32) error {
	if len(row) != n.cols || n.written == n.rows {
		return fmt.Errorf("npy: row %d of %d elements does not fit (%d, %d)", n.written, len(row), n.rows, n.cols)
	}
	n.written++
	var b [4]byte
	for _, x := range row {
		binary.LittleEndian.PutUint32(b[:], math.Float32bits(x))
		if _, err := n.w.Write(b[:]); err != nil {
			return err
		}
	}
	return nil
}

// flush writes what is buffered. A matrix that lacks rows is an error.
func (n *npyWriter) flush() error {
	if n.written != n.rows {
		return fmt.Errorf("npy: %d rows of %d were written", n.written, n.rows)
	}
	return n.w.Flush()
}
