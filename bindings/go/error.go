package protrain

import (
	"fmt"
	"strings"

	"protrain/internal/lib"
)

// Error says why a call failed. errors.Is finds its code: errors.Is(err, protrain.ErrBudget).
type Error struct {
	Code    Code
	Text    string // one sentence: what was found, what was expected, what to do
	Subject string // the node, tensor, file, argument or option that the error is about; "" if there is none
	Usable  bool   // whether the object of the failed call can still be used; if not, only Close makes sense

	cause error // the context's error, if the context stopped the call
}

// Error returns the sentence.
func (e *Error) Error() string { return e.Text }

// Is reports whether target is the error's code.
func (e *Error) Is(target error) bool { return target == e.Code }

// Unwrap returns the context's error if a context ended the call, else nil.
func (e *Error) Unwrap() error { return e.cause }

// Code is the kind of failure, for programs.
type Code int

// The codes of protrain.h.
const (
	ErrArg         Code = 1  // an argument or option is wrong
	ErrState       Code = 2  // the call does not fit the present state of the object
	ErrBusy        Code = 3  // another goroutine is inside the object
	ErrForked      Code = 4  // the object belongs to the parent process
	ErrVersion     Code = 5  // a file has an unknown version
	ErrPath        Code = 6  // a path that may not be followed
	ErrIO          Code = 7  // the system refused a file operation
	ErrNoSpace     Code = 8  // no space is left for a file
	ErrFormat      Code = 9  // the bytes of a file are malformed
	ErrLimit       Code = 10 // something exceeds a stated limit
	ErrShape       Code = 11 // shapes or lengths do not fit together
	ErrType        Code = 12 // element types do not fit together
	ErrGraph       Code = 13 // the graph is not legal, or has no loss
	ErrUnsupported Code = 14 // legal, but not supported by the library (yet)
	ErrCorrupt     Code = 15 // a checksum does not match
	ErrMismatch    Code = 16 // two things do not belong together, such as a checkpoint and a model
	ErrBudget      Code = 17 // nothing fits the stated memory; the text says what would
	ErrNoMemory    Code = 18 // the system refused memory
	ErrNonFinite   Code = 19 // NaN or infinity where numbers must be finite
	ErrPeer        Code = 20 // another rank failed
	ErrTimeout     Code = 21 // another rank did not answer in time
	ErrDevice      Code = 22 // the device or its driver failed
	ErrInternal    Code = 23 // a bug of the library; please report it
	ErrCancelled   Code = 24 // Cancel was called, or the context is done
)

var codeNames = [...]string{
	ErrArg: "argument", ErrState: "state", ErrBusy: "busy", ErrForked: "forked", ErrVersion: "version", ErrPath: "path",
	ErrIO: "input and output", ErrNoSpace: "no space", ErrFormat: "format", ErrLimit: "limit", ErrShape: "shape",
	ErrType: "type", ErrGraph: "graph", ErrUnsupported: "unsupported", ErrCorrupt: "corrupt", ErrMismatch: "mismatch",
	ErrBudget: "budget", ErrNoMemory: "no memory", ErrNonFinite: "not finite", ErrPeer: "peer", ErrTimeout: "timeout",
	ErrDevice: "device", ErrInternal: "internal", ErrCancelled: "cancelled",
}

// Error returns the code's name. Codes are errors so that errors.Is takes them.
func (c Code) Error() string {
	if c > 0 && int(c) < len(codeNames) {
		return "protrain: " + codeNames[c]
	}
	return fmt.Sprintf("protrain: code %d", int(c))
}

// ErrClosed is the error of every call on a closed object. It is an ErrState too.
var ErrClosed error = &Error{Code: ErrState, Text: "used after Close"}

var errBusy = &Error{Code: ErrBusy, Text: "another goroutine is inside this object, or its own listener", Usable: true}

func errorOf(failure *lib.Failure) error {
	if failure == nil {
		return nil
	}
	return &Error{Code: Code(failure.Code), Text: failure.Text, Subject: failure.Subject, Usable: failure.Usable}
}

// checkTexts refuses texts that contain a NUL, because C would read them only up to there.
func checkTexts(texts ...string) error {
	for _, text := range texts {
		if strings.IndexByte(text, 0) >= 0 {
			return &Error{Code: ErrArg, Text: fmt.Sprintf("%q has a NUL within", text), Subject: text, Usable: true}
		}
	}
	return nil
}
