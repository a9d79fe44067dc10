package protrain

import (
	"unsafe"

	"protrain/internal/lib"
)

// DType is the element type of an input or an output.
type DType int32

// The types of protrain.h.
const (
	Float32  DType = 1
	Float64  DType = 2
	Float16  DType = 3
	BFloat16 DType = 4
	Int8     DType = 5
	Int16    DType = 6
	Int32    DType = 7
	Int64    DType = 8
	UInt8    DType = 9
	UInt16   DType = 10
	UInt32   DType = 11
	UInt64   DType = 12
	Bool     DType = 13
)

// Float16Bits and BFloat16Bits are the bits of numbers that Go has no type for.
type (
	Float16Bits  uint16
	BFloat16Bits uint16
)

// Element is the type of an input's or an output's elements.
type Element interface {
	float32 | float64 | Float16Bits | BFloat16Bits | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | bool
}

func dtypeOf[T Element]() DType {
	var element T
	switch any(element).(type) {
	case float32:
		return Float32
	case float64:
		return Float64
	case Float16Bits:
		return Float16
	case BFloat16Bits:
		return BFloat16
	case int8:
		return Int8
	case int16:
		return Int16
	case int32:
		return Int32
	case int64:
		return Int64
	case uint8:
		return UInt8
	case uint16:
		return UInt16
	case uint32:
		return UInt32
	case uint64:
		return UInt64
	default:
		return Bool
	}
}

// SetInput copies the values of one input, in row-major order of dims. Every following step and evaluation uses them,
// until they are set again. T must be the input's own type, or float32 where that is another type of floats.
func SetInput[T Element](s *Session, name string, dims []int64, values []T) error {
	if err := checkTexts(name); err != nil {
		return err
	}
	return s.c.call(s.log, func(session uintptr) *lib.Failure {
		return lib.Session_set_input(session, name, int32(dtypeOf[T]()), dims, bytesOf(values))
	})
}

func bytesOf[T Element](values []T) []byte {
	if len(values) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), len(values)*int(unsafe.Sizeof(values[0])))
}

// Input describes an input of the model, for SetInput.
type Input struct {
	Name  string
	DType DType
	Dims  []int64
}

// Inputs returns the model's inputs, in the file's order. All of them must be set before the first step.
func (s *Session) Inputs() ([]Input, error) {
	count, err := get(s, lib.Session_input_count)
	inputs := make([]Input, count)
	for i := range inputs {
		if inputs[i], err = s.input(i); err != nil {
			return nil, err
		}
	}
	return inputs, err
}

func (s *Session) input(index int) (input Input, err error) {
	if input.Name, err = s.c.text(s.log, at(index, lib.Session_input_name)); err != nil {
		return input, err
	}
	dtype, err := get(s, at(index, lib.Session_input_dtype))
	if err != nil {
		return input, err
	}
	input.DType = DType(dtype)
	input.Dims, err = s.dims(index, lib.Session_input_shape)
	return input, err
}

// Output describes an output that the option keep_outputs names, for ReadOutput.
type Output struct {
	Name  string
	DType DType
	Dims  []int64
}

// Outputs returns the outputs that Predict computes, in the file's order, with their shapes in the last prediction.
func (s *Session) Outputs() ([]Output, error) {
	count, err := get(s, lib.Session_output_count)
	outputs := make([]Output, count)
	for i := range outputs {
		if outputs[i], err = s.output(i); err != nil {
			return nil, err
		}
	}
	return outputs, err
}

func (s *Session) output(index int) (output Output, err error) {
	if output.Name, err = s.c.text(s.log, at(index, lib.Session_output_name)); err != nil {
		return output, err
	}
	dtype, err := get(s, at(index, lib.Session_output_dtype))
	if err != nil {
		return output, err
	}
	output.DType = DType(dtype)
	output.Dims, err = s.dims(index, lib.Session_output_shape)
	return output, err
}

// ReadOutput reads an output of the last prediction into values, in row-major order. T must be the output's own type,
// or float32 where that is another type of floats.
func ReadOutput[T Element](s *Session, name string, values []T) error {
	return s.tell(name, func(session uintptr, name string) *lib.Failure {
		return lib.Session_output_read(session, name, int32(dtypeOf[T]()), bytesOf(values))
	})
}

// Parameter is a tensor of weights.
type Parameter struct {
	Name     string // the name of its initializer in the file
	Dims     []int64
	Elements int // the product of Dims
}

// Parameters returns the model's parameters, including frozen ones, in the order of first use in the graph. Running
// statistics that steps update come last.
func (s *Session) Parameters() ([]Parameter, error) {
	count, err := get(s, lib.Session_parameter_count)
	parameters := make([]Parameter, count)
	for i := range parameters {
		if parameters[i], err = s.parameter(i); err != nil {
			return nil, err
		}
	}
	return parameters, err
}

func (s *Session) parameter(index int) (parameter Parameter, err error) {
	if parameter.Name, err = s.c.text(s.log, at(index, lib.Session_parameter_name)); err != nil {
		return parameter, err
	}
	if parameter.Elements, err = get(s, at(index, lib.Session_parameter_elements)); err != nil {
		return parameter, err
	}
	parameter.Dims, err = s.dims(index, lib.Session_parameter_shape)
	return parameter, err
}

// ReadParameter reads a parameter into values, in row-major order. The length of values must be its number of elements.
func (s *Session) ReadParameter(name string, values []float32) error {
	return s.values(name, values, lib.Session_parameter_read)
}

// WriteParameter overwrites a parameter. The optimizer's state stays as it is.
func (s *Session) WriteParameter(name string, values []float32) error {
	return s.values(name, values, lib.Session_parameter_write)
}

// FlatParametersElements returns the number of elements of all parameters together. This is the length of the flat
// buffer that holds them one after the other, in the order of Parameters.
func (s *Session) FlatParametersElements() (int, error) {
	return get(s, lib.Session_flat_parameters_elements)
}

// ReadFlatParameters reads all parameters into one flat buffer of FlatParametersElements values.
func (s *Session) ReadFlatParameters(values []float32) error {
	return s.c.call(s.log, func(session uintptr) *lib.Failure { return lib.Session_flat_parameters_read(session, values) })
}

// WriteFlatParameters overwrites all parameters from one flat buffer. The optimizer's state stays as it is.
func (s *Session) WriteFlatParameters(values []float32) error {
	return s.c.call(s.log, func(session uintptr) *lib.Failure { return lib.Session_flat_parameters_write(session, values) })
}

// ReadGrad reads the gradient that a parameter had in the last step, if the option keep_gradients names it.
func (s *Session) ReadGrad(name string, values []float32) error {
	return s.values(name, values, lib.Session_grad_read)
}

func (s *Session) values(name string, values []float32, function func(uintptr, string, []float32) *lib.Failure) error {
	return s.tell(name, func(session uintptr, name string) *lib.Failure { return function(session, name, values) })
}

func (s *Session) dims(index int, function func(uintptr, int, []int64, *int) *lib.Failure) ([]int64, error) {
	var dims []int64
	shape := func(session uintptr, rank *int) *lib.Failure { return function(session, index, dims, rank) }
	rank, err := get(s, shape)
	if err != nil {
		return nil, err
	}
	dims = make([]int64, rank)
	_, err = get(s, shape)
	return dims, err
}

// get runs a call that returns one value.
func get[T any](s *Session, function func(session uintptr, value *T) *lib.Failure) (value T, err error) {
	err = s.c.call(s.log, func(session uintptr) *lib.Failure { return function(session, &value) })
	return value, err
}

// at turns a function of a session and an index into a function of a session alone.
func at[T any](index int, function func(uintptr, int, *T) *lib.Failure) func(uintptr, *T) *lib.Failure {
	return func(session uintptr, value *T) *lib.Failure { return function(session, index, value) }
}
