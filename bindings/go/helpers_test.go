package protrain_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"protrain"
)

const batch, sequence = 8, 16

var (
	background = context.Background()
	dims       = []int64{batch, sequence}
)

func fixture(name string) string {
	folder := os.Getenv("PROTRAIN_FIXTURES")
	if folder == "" {
		folder = "../../tests/fixtures"
	}
	return filepath.Join(folder, name)
}

func model() string { return fixture("gpt2-dynamic-opset18.onnx") }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func options(t testing.TB, pairs ...string) *protrain.Options {
	t.Helper()
	o, err := protrain.NewOptions(append([]string{"dim", fmt.Sprint("batch=", batch), "dim",
		fmt.Sprint("sequence=", sequence), "learning_rate", "1e-3", "threads", "1"}, pairs...)...)
	must(t, err)
	t.Cleanup(func() { o.Close() })
	return o
}

func session(t testing.TB, pairs ...string) *protrain.Session {
	t.Helper()
	s, err := options(t, pairs...).NewSession(model())
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func setTokens(t testing.TB, s *protrain.Session, seed int) {
	t.Helper()
	tokens := make([]int64, batch*sequence)
	for i := range tokens {
		tokens[i] = int64((i*7 + seed) % 256)
	}
	must(t, protrain.SetInput(s, "input_ids", dims, tokens))
	must(t, protrain.SetInput(s, "labels", dims, tokens))
}

// train returns the bits of each step's loss.
func train(t testing.TB, s *protrain.Session, first, last int) []uint32 {
	t.Helper()
	var losses []uint32
	for step := first; step <= last; step++ {
		setTokens(t, s, step)
		loss, err := s.Step(background)
		must(t, err)
		losses = append(losses, math.Float32bits(loss))
	}
	return losses
}
