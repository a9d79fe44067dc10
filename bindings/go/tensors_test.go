package protrain_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"protrain"
)

func TestTensors(t *testing.T) {
	s := session(t, "keep_gradients", "*")
	inputs, err := s.Inputs()
	must(t, err)
	want := "[{input_ids 8 [8 16]} {labels 8 [8 16]}]"
	if got := fmt.Sprint(inputs); got != want {
		t.Errorf("inputs %s, not %s", got, want)
	}
	parameters, err := s.Parameters()
	must(t, err)
	train(t, s, 1, 1)
	var squares float64
	for _, p := range parameters {
		elements := 1
		for _, dim := range p.Dims {
			elements *= int(dim)
		}
		if p.Name == "" || p.Elements != elements {
			t.Errorf("%+v has %d elements", p, elements)
		}
		values := make([]float32, p.Elements)
		must(t, s.ReadGrad(p.Name, values))
		for _, v := range values {
			squares += float64(v) * float64(v)
		}
	}
	if norm, err := s.GradNorm(); err != nil || math.Abs(norm-math.Sqrt(squares)) > 1e-4*norm {
		t.Errorf("the gradients' norm is %g, of those that were read %g", norm, math.Sqrt(squares))
	}

	name, values := parameters[0].Name, make([]float32, parameters[0].Elements)
	must(t, s.ReadParameter(name, values))
	values[0] += 1
	must(t, s.WriteParameter(name, values))
	read := make([]float32, len(values))
	must(t, s.ReadParameter(name, read))
	if fmt.Sprint(read) != fmt.Sprint(values) {
		t.Errorf("%s was not written", name)
	}
	if err := s.ReadParameter(name, values[1:]); !errors.Is(err, protrain.ErrShape) {
		t.Errorf("a slice that is too short: %v", err)
	}
}

func TestAllParametersAreOneBuffer(t *testing.T) {
	s := session(t)
	train(t, s, 1, 1)
	elements, err := s.FlatParametersElements()
	must(t, err)
	flat := make([]float32, elements)
	must(t, s.ReadFlatParameters(flat))
	parameters, err := s.Parameters()
	must(t, err)
	at := 0
	for _, p := range parameters {
		values := make([]float32, p.Elements)
		must(t, s.ReadParameter(p.Name, values))
		if fmt.Sprint(flat[at:at+p.Elements]) != fmt.Sprint(values) {
			t.Errorf("%s is not at %d", p.Name, at)
		}
		at += p.Elements
	}
	if at != elements {
		t.Errorf("%d elements, not %d", elements, at)
	}

	other := session(t)
	must(t, other.WriteFlatParameters(flat))
	read := make([]float32, elements)
	must(t, other.ReadFlatParameters(read))
	if fmt.Sprint(read) != fmt.Sprint(flat) {
		t.Error("the parameters were not written")
	}
	if err := other.WriteFlatParameters(flat[1:]); !errors.Is(err, protrain.ErrShape) {
		t.Errorf("a slice that is too short: %v", err)
	}
}

func TestElementTypes(t *testing.T) {
	s := session(t)
	wrong := func(dtype string, err error) {
		t.Helper()
		if !errors.Is(err, protrain.ErrType) || !strings.Contains(err.Error(), dtype) {
			t.Errorf("%s for int64: %v", dtype, err)
		}
	}
	const n = batch * sequence
	wrong("float32", protrain.SetInput(s, "labels", dims, make([]float32, n)))
	wrong("float64", protrain.SetInput(s, "labels", dims, make([]float64, n)))
	wrong("float16", protrain.SetInput(s, "labels", dims, make([]protrain.Float16Bits, n)))
	wrong("bfloat16", protrain.SetInput(s, "labels", dims, make([]protrain.BFloat16Bits, n)))
	wrong("int8", protrain.SetInput(s, "labels", dims, make([]int8, n)))
	wrong("int16", protrain.SetInput(s, "labels", dims, make([]int16, n)))
	wrong("int32", protrain.SetInput(s, "labels", dims, make([]int32, n)))
	wrong("uint8", protrain.SetInput(s, "labels", dims, make([]uint8, n)))
	wrong("uint16", protrain.SetInput(s, "labels", dims, make([]uint16, n)))
	wrong("uint32", protrain.SetInput(s, "labels", dims, make([]uint32, n)))
	wrong("uint64", protrain.SetInput(s, "labels", dims, make([]uint64, n)))
	wrong("bool", protrain.SetInput(s, "labels", dims, make([]bool, n)))
	if err := protrain.SetInput(s, "labels", dims, []int64{}); !errors.Is(err, protrain.ErrShape) {
		t.Errorf("no elements: %v", err)
	}
}
