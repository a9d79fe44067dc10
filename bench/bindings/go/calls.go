// Calls measures how much longer a call through the Go layer takes than the same call in C. It prints nanoseconds as
// JSON. The fastest of many short rounds of each counts.
//
//	calls MODEL.onnx    with inputs input_ids and labels of batch x sequence
package main

/*
#cgo pkg-config: protrain
#include <protrain.h>
#include <stdlib.h>
#include <time.h>

static const int64_t dims[2] = {8, 16};
static int64_t tokens[8 * 16];
static protrain_session *session;

static int must(protrain_error *error) {
  if (error != NULL) abort();
  return 0;
}

static void open_model(const char *model) {
  protrain_options *options;
  must(protrain_options_create(&options));
  must(protrain_options_set(options, "dim", "batch=8"));
  must(protrain_options_set(options, "dim", "sequence=16"));
  must(protrain_session_create(options, model, &session));
  protrain_options_destroy(options);
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

static double call(int which, int times) {
  uint64_t count;
  const double begin = seconds();
  for (int i = 0; i < times; ++i) switch (which) {
      case 0: must(protrain_session_set_learning_rate(session, 1e-3)); break;
      case 1: must(protrain_session_step_count(session, &count)); break;
      case 2: must(protrain_session_set_input(session, "labels", PROTRAIN_INT64, dims, 2, tokens, sizeof tokens)); break;
    }
  return seconds() - begin;
}
*/
import "C"

import (
	"encoding/json"
	"fmt"
	"log"
	"math"
	"os"
	"time"

	"protrain"
)

const rounds, times = 400, 500

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: calls MODEL.onnx")
		os.Exit(2)
	}
	C.open_model(C.CString(os.Args[1]))
	options, err := protrain.NewOptions("dim", "batch=8", "dim", "sequence=16")
	must(err)
	session, err := options.NewSession(os.Args[1])
	must(err)

	dims, tokens := []int64{8, 16}, make([]int64, 8*16)
	calls := []struct {
		name string
		call func() error
	}{
		{"set_learning_rate", func() error { return session.SetLearningRate(1e-3) }},
		{"step_count", func() error { _, err := session.StepCount(); return err }},
		{"set_input", func() error { return protrain.SetInput(session, "labels", dims, tokens) }},
	}
	type cost struct {
		C    float64 `json:"c"`
		Go   float64 `json:"go"`
		Over float64 `json:"over"`
	}
	result := map[string]cost{}
	for which, call := range calls {
		best := cost{math.Inf(1), math.Inf(1), 0}
		for round := 0; round < rounds; round++ {
			best.C = math.Min(best.C, float64(C.call(C.int(which), times))/times*1e9)
			begin := time.Now()
			for i := 0; i < times; i++ {
				must(call.call())
			}
			best.Go = math.Min(best.Go, time.Since(begin).Seconds()/times*1e9)
		}
		best.Over = best.Go - best.C
		result[call.name] = best
	}
	must(json.NewEncoder(os.Stdout).Encode(result))
}
