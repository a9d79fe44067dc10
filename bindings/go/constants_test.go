package protrain_test

import (
	"os"
	"regexp"
	"testing"

	"protrain"
	"protrain/internal/lib"
)

// This package must have all constants of protrain.h, with the same numbers.
func TestConstants(t *testing.T) {
	codes := map[protrain.Code]lib.Protrain_code{
		protrain.ErrArg:         lib.PROTRAIN_ERROR_ARG,
		protrain.ErrState:       lib.PROTRAIN_ERROR_STATE,
		protrain.ErrBusy:        lib.PROTRAIN_ERROR_BUSY,
		protrain.ErrForked:      lib.PROTRAIN_ERROR_FORKED,
		protrain.ErrVersion:     lib.PROTRAIN_ERROR_VERSION,
		protrain.ErrPath:        lib.PROTRAIN_ERROR_PATH,
		protrain.ErrIO:          lib.PROTRAIN_ERROR_IO,
		protrain.ErrNoSpace:     lib.PROTRAIN_ERROR_NOSPC,
		protrain.ErrFormat:      lib.PROTRAIN_ERROR_FORMAT,
		protrain.ErrLimit:       lib.PROTRAIN_ERROR_LIMIT,
		protrain.ErrShape:       lib.PROTRAIN_ERROR_SHAPE,
		protrain.ErrType:        lib.PROTRAIN_ERROR_TYPE,
		protrain.ErrGraph:       lib.PROTRAIN_ERROR_GRAPH,
		protrain.ErrUnsupported: lib.PROTRAIN_ERROR_UNSUPPORTED,
		protrain.ErrCorrupt:     lib.PROTRAIN_ERROR_CORRUPT,
		protrain.ErrMismatch:    lib.PROTRAIN_ERROR_MISMATCH,
		protrain.ErrBudget:      lib.PROTRAIN_ERROR_BUDGET,
		protrain.ErrNoMemory:    lib.PROTRAIN_ERROR_NOMEM,
		protrain.ErrNonFinite:   lib.PROTRAIN_ERROR_NONFINITE,
		protrain.ErrPeer:        lib.PROTRAIN_ERROR_PEER,
		protrain.ErrTimeout:     lib.PROTRAIN_ERROR_TIMEOUT,
		protrain.ErrDevice:      lib.PROTRAIN_ERROR_DEVICE,
		protrain.ErrInternal:    lib.PROTRAIN_ERROR_INTERNAL,
		protrain.ErrCancelled:   lib.PROTRAIN_ERROR_CANCELLED,
	}
	dtypes := map[protrain.DType]lib.Protrain_dtype{
		protrain.Float32:  lib.PROTRAIN_FLOAT32,
		protrain.Float64:  lib.PROTRAIN_FLOAT64,
		protrain.Float16:  lib.PROTRAIN_FLOAT16,
		protrain.BFloat16: lib.PROTRAIN_BFLOAT16,
		protrain.Int8:     lib.PROTRAIN_INT8,
		protrain.Int16:    lib.PROTRAIN_INT16,
		protrain.Int32:    lib.PROTRAIN_INT32,
		protrain.Int64:    lib.PROTRAIN_INT64,
		protrain.UInt8:    lib.PROTRAIN_UINT8,
		protrain.UInt16:   lib.PROTRAIN_UINT16,
		protrain.UInt32:   lib.PROTRAIN_UINT32,
		protrain.UInt64:   lib.PROTRAIN_UINT64,
		protrain.Bool:     lib.PROTRAIN_BOOL,
	}
	for ours, c := range codes {
		if int(ours) != int(c) {
			t.Errorf("%v is %d here and %d in C", ours, ours, c)
		}
	}
	for ours, c := range dtypes {
		if int(ours) != int(c) {
			t.Errorf("a type is %d here and %d in C", ours, c)
		}
	}
	generated, err := os.ReadFile("internal/lib/lib.go")
	must(t, err)
	constants := regexp.MustCompile(`(?m)^var PROTRAIN_`).FindAll(generated, -1)
	if len(constants) != 1+len(codes)+len(dtypes) { // and PROTRAIN_OK
		t.Errorf("protrain.h has %d constants", len(constants))
	}
}
