// Package lib holds what SWIG generates from protrain.h: the C functions under their C names. Programs use package
// protrain instead.
package lib

import (
	"bytes"
	"unsafe"
)

// Failure is a copy of a C error, made by the call that failed.
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
	if cap(block) == len(block) {
		Swig_free(uintptr(unsafe.Pointer(&block[0])))
	}
	return failure
}
