package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"strings"
)

// npyWriter writes a float32 matrix in NumPy's format, version 1.0, row by row:
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
type npyWriter struct {
	file       *os.File
	w          *bufio.Writer
	rows, cols int
	written    int
}

func createNPY(path string, rows, cols int) (*npyWriter, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	const magic = "\x93NUMPY\x01\x00"
	head := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", rows, cols)
	// The header ends in a newline, and the data starts at a multiple of 64 bytes.
	head += strings.Repeat(" ", 63-(len(magic)+2+len(head))%64) + "\n"
	w := bufio.NewWriterSize(f, 1<<16)
	w.WriteString(magic)
	binary.Write(w, binary.LittleEndian, uint16(len(head)))
	w.WriteString(head)
	return &npyWriter{file: f, w: w, rows: rows, cols: cols}, nil
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

// close finishes the file; after a failure it removes it, so that no half matrix is taken for a whole one.
func (n *npyWriter) close(err error) error {
	if err == nil && n.written != n.rows {
		err = fmt.Errorf("npy: %d rows of %d were written", n.written, n.rows)
	}
	if e := n.w.Flush(); err == nil {
		err = e
	}
	if e := n.file.Close(); err == nil {
		err = e
	}
	if err != nil {
		os.Remove(n.file.Name())
	}
	return err
}
