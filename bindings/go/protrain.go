// Package protrain trains models from ONNX files under a memory budget. It is a thin layer over the C library
// libprotrain, whose header, protrain.h, is the manual: what a function does, which errors it has, and what they leave
// behind stands there, under the same words.
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
// [Options] and a [Session] are used by one goroutine at a time; a second one gets [ErrBusy]. [Session.Cancel] may be
// called from any. Both are to be closed; a finalizer does it for what was forgotten, at some time or never.
//
// Slices are read and written where they lie. Nothing of the caller's is kept when a call has returned.
package protrain

import "protrain/internal/lib"

// Version is that of the C library that is running, such as "0.1.0".
func Version() string { return lib.Version() }
