// Package lib is what SWIG makes of protrain.h: C's functions under C's names. Package protrain is for people.
package lib

import (
	"bytes"
	"unsafe"
)

// Failure is an error of C, read where it happened.
type Failure struct {
	Code          int
	Usable        bool
	Subject, Text string
}

// takeFailure reads the block that go.i describes, and frees it.
func takeFailure(block []byte) *Failure {
	if block == nil {
		return nil
	}
	end := 2 + bytes.IndexByte(block[2:], 0)
	failure := &Failure{int(block[0]), block[1] != 0, string(block[2:end]), string(block[end+1:])}
	Swig_free(uintptr(unsafe.Pointer(&block[0])))
	return failure
}
