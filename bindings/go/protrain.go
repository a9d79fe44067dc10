// Package protrain trains models from ONNX files under a memory budget. It is a thin layer over the C library
// libprotrain. The C header, protrain.h, is the manual. It documents each function under the same name: what it does,
// its errors, and the state after an error.
//
//	options, err := protrain.NewOptions("dim", "batch=8", "dim", "sequence=64", "memory", "2GiB")
//	...
//	defer options.Close()
//	session, err := options.NewSession("model.onnx")
//	...
//	defer session.Close()
//	for step := 1; step <= 100; step++ {
//		// ... new tokens here ...
//		err = protrain.SetInput(session, "input_ids", []int64{8, 64}, tokens)
//		...
//		loss, err := session.Step(ctx)
//		...
//	}
//	err = session.Export("trained.onnx")
//
// Only one goroutine at a time may use [Options] or a [Session]; a second one gets [ErrBusy]. Any goroutine may call
// [Session.Cancel]. Close both. A finalizer closes forgotten ones, at some time or never.
//
// Slices are read and written in place. No slice is kept after a call.
package protrain

import "protrain/internal/lib"

// Version returns the version of the running C library, such as "0.1.0".
func Version() string { return lib.Version() }
