package protrain_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

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

// budget returns options for a budget a little above the smallest that works, and below the resident plan's memory.
func budget(t *testing.T) []string {
	t.Helper()
	var refused struct {
		Feasible bool
		WouldFit []struct{ Options struct{ Memory string } } `json:"would_fit"`
		Resident struct {
			Bytes int64 `json:"device_peak_bytes"`
		}
	}
	disk := []string{"offload_dir", t.TempDir(), "memory"}
	plan, err := options(t, append(disk, "100KiB")...).Plan(model())
	must(t, err)
	must(t, json.Unmarshal(plan, &refused))
	if refused.Feasible || len(refused.WouldFit) == 0 {
		t.Fatalf("100 KiB should be too little: %s", plan)
	}
	var smallest int64
	fmt.Sscan(refused.WouldFit[0].Options.Memory, &smallest)
	memory := smallest + smallest/20
	if memory <= 0 || memory >= refused.Resident.Bytes {
		t.Fatalf("%d of %d bytes is no small budget", memory, refused.Resident.Bytes)
	}
	return append(disk, fmt.Sprint(memory))
}

func TestGradientsAreChecked(t *testing.T) {
	o, err := protrain.NewOptions("dim", fmt.Sprint("batch=", batch))
	must(t, err)
	defer o.Close()
	s, err := o.NewSession(fixture("root.onnx"))
	must(t, err)
	defer s.Close()
	for _, input := range []string{"x", "u"} {
		must(t, protrain.SetInput(s, input, []int64{batch, 4}, make([]float32, 4*batch)))
	}
	answer, err := s.CheckGradients(1)
	must(t, err)
	var gradients struct {
		Passed bool `json:"passed"`
	}
	must(t, json.Unmarshal(answer, &gradients))
	if !gradients.Passed {
		t.Errorf("gradients differ from slopes: %s", answer)
	}
}

func TestPredictsOutputs(t *testing.T) {
	o, err := protrain.NewOptions("dim", "batch=3", "loss", "cross_entropy", "keep_outputs", "*", "threads", "1")
	must(t, err)
	defer o.Close()
	s, err := o.NewSession(fixture("outputs/classes.onnx"))
	must(t, err)
	defer s.Close()
	must(t, protrain.SetInput(s, "tokens", []int64{3, 6}, make([]int64, 18)))
	must(t, s.Predict())
	outputs, err := s.Outputs()
	must(t, err)
	if got := fmt.Sprint(outputs); got != "[{logits 1 [3 5]} {choice 8 [3]} {features 1 [3 7]}]" {
		t.Error(got)
	}
	logits, choice := make([]float32, 15), make([]int64, 3)
	must(t, protrain.ReadOutput(s, "logits", logits))
	must(t, protrain.ReadOutput(s, "choice", choice))
	for row := range choice {
		for _, logit := range logits[5*row : 5*row+5] {
			if logit > logits[5*row+int(choice[row])] {
				t.Errorf("row %d: %v is not the largest of %v", row, choice[row], logits[5*row:5*row+5])
			}
		}
	}
	if err := protrain.ReadOutput(s, "choice", make([]int32, 6)); !errors.Is(err, protrain.ErrType) {
		t.Error(err)
	}
}

func TestTrainsInLittleMemory(t *testing.T) {
	small := session(t, budget(t)...)
	setTokens(t, small, 1)
	before, err := small.Eval(background)
	must(t, err)
	losses := train(t, small, 1, 12)
	if losses[0] != math.Float32bits(before) {
		t.Errorf("the first step's loss is not the evaluation's")
	}
	if first, last := math.Float32frombits(losses[0]), math.Float32frombits(losses[11]); !(last < first) {
		t.Errorf("the loss rose from %g to %g", first, last)
	}
	if whole := train(t, session(t), 1, 12); fmt.Sprint(whole) != fmt.Sprint(losses) {
		t.Errorf("the budget changed the bits: %x and %x", losses, whole)
	}

	var plan struct {
		Chunks  int `json:"n_chunk"`
		Persist int `json:"n_persist"`
	}
	var report struct {
		Disk int64 `json:"disk_bytes"`
	}
	answer, err := small.Plan()
	must(t, err)
	must(t, json.Unmarshal(answer, &plan))
	answer, err = small.Report()
	must(t, err)
	must(t, json.Unmarshal(answer, &report))
	if plan.Persist >= plan.Chunks || report.Disk == 0 {
		t.Errorf("nothing rests on disk: %+v %+v", plan, report)
	}
	rank, err := small.Rank()
	must(t, err)
	if count, err := small.RankCount(); err != nil || rank != 0 || count != 1 {
		t.Errorf("a session alone is rank %d of %d, %v", rank, count, err)
	}
	if norm, err := small.GradNorm(); err != nil || !(norm > 0) {
		t.Errorf("the gradients' norm is %g, %v", norm, err)
	}
}

// Two ranks train in one process. Only the second one's context ends, and both must stop.
func TestRanksStopTogether(t *testing.T) {
	meet := t.TempDir()
	ctx, stop := context.WithCancel(background)
	defer stop()
	contexts := []context.Context{background, ctx}
	var losses [2][]uint32
	var open, ends [2]error
	var wait sync.WaitGroup
	for rank, o := range []*protrain.Options{
		options(t, "ranks", "2", "rank", "0", "rendezvous", meet, "comm_timeout", "60"),
		options(t, "ranks", "2", "rank", "1", "rendezvous", meet, "comm_timeout", "60"),
	} {
		wait.Add(1)
		go func(rank int, o *protrain.Options) {
			defer wait.Done()
			s, err := o.NewSession(model())
			if open[rank] = err; err != nil {
				return
			}
			defer s.Close()
			setTokens(t, s, rank)
			for ends[rank] == nil {
				loss, err := s.Step(contexts[rank])
				if ends[rank] = err; err == nil {
					losses[rank] = append(losses[rank], math.Float32bits(loss))
				}
				if rank == 1 && len(losses[rank]) == 3 {
					stop()
				}
			}
			if number, err := s.Rank(); err != nil || number != uint64(rank) {
				t.Errorf("rank %d is %d, %v", rank, number, err)
			}
			if loss, err := s.Step(background); err != nil || !(math.Float32frombits(losses[rank][0]) > loss) {
				t.Errorf("after the cancel: %g, %v", loss, err)
			}
		}(rank, o)
	}
	wait.Wait()
	if errors.Is(open[0], protrain.ErrUnsupported) {
		t.Skip(open[0])
	}
	must(t, open[0])
	must(t, open[1])
	if len(losses[0]) != 3 || fmt.Sprint(losses[0]) != fmt.Sprint(losses[1]) {
		t.Errorf("the ranks took other steps: %x and %x", losses[0], losses[1])
	}
	for rank, err := range ends {
		if !errors.Is(err, protrain.ErrCancelled) || errors.Is(err, context.Canceled) != (rank == 1) {
			t.Errorf("rank %d ended with %v", rank, err)
		}
	}
}

func TestGoesOnFromACheckpoint(t *testing.T) {
	directory := t.TempDir()
	whole := session(t)
	train(t, whole, 1, 3)
	must(t, whole.Save(directory))
	want := train(t, whole, 4, 6)
	must(t, whole.Close())

	second := session(t, "resume", directory)
	if count, err := second.StepCount(); err != nil || count != 3 {
		t.Errorf("%d steps, %v", count, err)
	}
	if got := train(t, second, 4, 6); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%x after the checkpoint, %x without it", got, want)
	}
	trained := filepath.Join(directory, "trained.onnx")
	must(t, second.Export(trained))
	answer, err := options(t).Check(trained)
	must(t, err)
	if !strings.Contains(string(answer), `"trainable": true`) && !strings.Contains(string(answer), `"trainable":true`) {
		t.Errorf("the exported model: %s", answer)
	}
}

func TestAdapters(t *testing.T) {
	directory := t.TempDir()
	adapted := session(t, "lora", "*.c_attn.weight")
	setTokens(t, adapted, 0)
	_, err := adapted.Step(context.Background())
	must(t, err)
	adapter, path := filepath.Join(directory, "adapter"), filepath.Join(directory, "merged.onnx")
	must(t, adapted.ExportAdapters(adapter))
	o := options(t)
	must(t, o.Merge(model(), adapter, path))
	merged, err := o.NewSession(path)
	must(t, err)
	defer merged.Close()
	setTokens(t, merged, 0)
	want, err := adapted.Eval(context.Background())
	must(t, err)
	got, err := merged.Eval(context.Background())
	must(t, err)
	if math.Abs(float64(got-want)) > 1e-4 {
		t.Errorf("%g merged, %g before", got, want)
	}
	must(t, adapted.UseAdapters(false))
	base, err := adapted.Eval(context.Background())
	must(t, err)
	if _, err := adapted.Step(context.Background()); err == nil {
		t.Error("a step without adapters")
	}
	must(t, adapted.UseAdapters(true))
	must(t, adapted.LoadAdapters(adapter))
	again, err := adapted.Eval(context.Background())
	must(t, err)
	if base == want || again != want {
		t.Errorf("%g with adapters, %g without, %g with them again", want, base, again)
	}
}

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

func TestSessionFromBytes(t *testing.T) {
	file, err := os.ReadFile(model())
	must(t, err)
	o := options(t)
	s, err := o.NewSessionFromBytes(file, "")
	must(t, err)
	defer s.Close()
	for i := range file {
		file[i] = 0 // the session has its own copy
	}
	train(t, s, 1, 1)
	other := session(t)
	train(t, other, 1, 1)
	norm, err := s.GradNorm()
	must(t, err)
	want, err := other.GradNorm()
	must(t, err)
	if norm != want {
		t.Errorf("the gradients' norm is %g, from the file %g", norm, want)
	}
	if _, err := o.NewSessionFromBytes(file, ""); !errors.Is(err, protrain.ErrFormat) {
		t.Errorf("zeros: %v", err)
	}
	if _, err := o.NewSessionFromBytes(nil, ""); !errors.Is(err, protrain.ErrFormat) {
		t.Errorf("nothing: %v", err)
	}
	if _, err := o.NewSessionFromBytes(file, "\x00"); !errors.Is(err, protrain.ErrArg) {
		t.Errorf("a directory with a NUL: %v", err)
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

func TestErrors(t *testing.T) {
	o := options(t)
	var e *protrain.Error
	err := o.Set("learning_rat", "1")
	if !errors.Is(err, protrain.ErrArg) || !errors.As(err, &e) || !e.Usable || e.Subject != "learning_rat" {
		t.Errorf("%#v", err)
	}
	if errors.Is(err, protrain.ErrBudget) || !strings.Contains(err.Error(), "learning_rate") {
		t.Errorf("%v does not name the nearest option", err)
	}
	if err := o.Set("memory", "1GiB\x00"); !errors.Is(err, protrain.ErrArg) {
		t.Errorf("a text with a NUL: %v", err)
	}
	if _, err := o.Get("x\x00"); !errors.Is(err, protrain.ErrArg) {
		t.Errorf("a text with a NUL: %v", err)
	}
	if _, err := o.NewSession("x\x00"); !errors.Is(err, protrain.ErrArg) {
		t.Errorf("a text with a NUL: %v", err)
	}
	if _, err := o.NewSession("/nowhere.onnx"); !errors.Is(err, protrain.ErrIO) {
		t.Errorf("no file: %v", err)
	}
	must(t, o.Set("memory", "100KiB"))
	if _, err := o.NewSession(model()); !errors.Is(err, protrain.ErrBudget) {
		t.Errorf("100 KiB: %v", err)
	}
	if _, err := protrain.NewOptions("memory"); !errors.Is(err, protrain.ErrArg) {
		t.Errorf("a key without a value: %v", err)
	}
	if _, err := protrain.NewOptions("memory", "much"); !errors.Is(err, protrain.ErrArg) {
		t.Errorf("a value that is none: %v", err)
	}
	s := session(t)
	if _, err := s.Step(background); !errors.Is(err, protrain.ErrState) {
		t.Errorf("a step without inputs: %v", err)
	}
}

func TestOptions(t *testing.T) {
	o := options(t, "profile_dir", t.TempDir())
	if value, err := o.Get("dim"); err != nil || value != "batch=8\nsequence=16" {
		t.Errorf("dim is %q, %v", value, err)
	}
	var rows []struct{ Key string }
	help, err := o.Help()
	must(t, err)
	must(t, json.Unmarshal(help, &rows))
	if len(rows) < 20 {
		t.Errorf("only %d options", len(rows))
	}
	events := 0
	must(t, o.SetLog(func(event json.RawMessage) {
		if !strings.Contains(string(event), `"profiling"`) {
			t.Errorf("%s", event)
		}
		events++
	}))
	hardware, err := o.Profile(model())
	must(t, err)
	if !json.Valid(hardware) || events == 0 {
		t.Errorf("%d events, %s", events, hardware)
	}
	must(t, o.SetLog(nil))
	if protrain.Version() == "" {
		t.Error("no version")
	}
}

func TestLog(t *testing.T) {
	s := session(t)
	var events []string
	must(t, s.SetLog(func(line json.RawMessage) {
		var event struct{ Event string }
		must(t, json.Unmarshal(line, &event))
		events = append(events, event.Event)
		if _, err := s.StepCount(); !errors.Is(err, protrain.ErrBusy) {
			t.Errorf("a listener is inside already: %v", err)
		}
		if err := s.Close(); !errors.Is(err, protrain.ErrBusy) {
			t.Errorf("closed from within: %v", err)
		}
	}))
	train(t, s, 1, 2)
	must(t, s.Save(t.TempDir()))
	must(t, s.SetLog(nil))
	train(t, s, 3, 3)
	if got := fmt.Sprint(events); got != "[created step step saved]" {
		t.Error(got)
	}
}

func TestPanicOfAListener(t *testing.T) {
	s := session(t)
	thrown := func(call func()) (p any) {
		defer func() { p = recover() }()
		call()
		return nil
	}
	calls := 0
	if p := thrown(func() { s.SetLog(func(json.RawMessage) { panic("created") }) }); p != "created" {
		t.Errorf("SetLog panicked with %v", p)
	}
	must(t, s.SetLog(func(line json.RawMessage) {
		if calls++; calls == 3 {
			panic("enough")
		}
	}))
	if p := thrown(func() { train(t, s, 1, 100) }); p != "enough" || calls != 3 {
		t.Errorf("training panicked with %v after %d events", p, calls)
	}
	if count, err := s.StepCount(); err != nil || count != 3 {
		t.Errorf("%d steps, %v", count, err)
	}
	train(t, s, 4, 5)
	o := options(t, "profile_dir", t.TempDir())
	must(t, o.SetLog(func(json.RawMessage) { panic("measured") }))
	if p := thrown(func() { o.NewSession(model()) }); p != "measured" {
		t.Errorf("NewSession panicked with %v", p)
	}
}

func TestCancel(t *testing.T) {
	s := session(t)
	setTokens(t, s, 1)
	s.Cancel()
	if _, err := s.Step(background); !errors.Is(err, protrain.ErrCancelled) || errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	train(t, s, 1, 1)

	// Another goroutine cancels while steps run.
	stop := time.AfterFunc(20*time.Millisecond, s.Cancel)
	defer stop.Stop()
	var err error
	for err == nil {
		_, err = s.Step(background)
	}
	if !errors.Is(err, protrain.ErrCancelled) {
		t.Errorf("%v", err)
	}

	ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
	defer cancel()
	for err = nil; err == nil; {
		_, err = s.Eval(ctx)
	}
	var e *protrain.Error
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, protrain.ErrCancelled) || !errors.As(err, &e) ||
		!e.Usable {
		t.Errorf("%v", err)
	}
	if _, err := s.Step(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	train(t, s, 1, 1)
}

// A context may end at any time before, during or after a call. Its cancel must never stop a later call.
func TestContextsEndEverywhere(t *testing.T) {
	s := session(t)
	setTokens(t, s, 1)
	begin := time.Now()
	_, err := s.Eval(background)
	must(t, err)
	length := time.Since(begin)
	for i := 0; i < 60; i++ {
		ctx, cancel := context.WithTimeout(background, length*time.Duration(i)/40)
		if _, err := s.Eval(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		cancel()
		_, err := s.GradNorm() // a cancel stops only steps and evaluations
		if !errors.Is(err, protrain.ErrState) {
			t.Fatal(err)
		}
		_, err = s.Eval(background)
		must(t, err)
	}
}

func TestUseAfterClose(t *testing.T) {
	s, o := session(t), options(t)
	must(t, s.Close())
	must(t, s.Close())
	must(t, o.Close())
	s.Cancel()
	closed := func(err error) {
		t.Helper()
		if !errors.Is(err, protrain.ErrClosed) || !errors.Is(err, protrain.ErrState) {
			t.Errorf("%v", err)
		}
	}
	_, err := s.Step(background)
	closed(err)
	_, err = s.Parameters()
	closed(err)
	_, err = s.Plan()
	closed(err)
	closed(s.SetLog(func(json.RawMessage) {}))
	closed(protrain.SetInput(s, "labels", dims, []int64{}))
	closed(o.Set("memory", "1GiB"))
	_, err = o.NewSession(model())
	closed(err)
}

func TestASecondGoroutineIsBusy(t *testing.T) {
	s := session(t)
	setTokens(t, s, 1)
	inside, leave := make(chan bool), make(chan bool)
	must(t, s.SetLog(func(line json.RawMessage) {
		if strings.Contains(string(line), `"step"`) {
			inside <- true
			<-leave
		}
	}))
	result := make(chan error)
	go func() {
		_, err := s.Step(background)
		result <- err
	}()
	<-inside
	if _, err := s.Eval(background); !errors.Is(err, protrain.ErrBusy) {
		t.Errorf("%v", err)
	}
	if err := s.Close(); !errors.Is(err, protrain.ErrBusy) {
		t.Errorf("%v", err)
	}
	leave <- true
	must(t, <-result)
}

func TestEightSessionsAtOnce(t *testing.T) {
	o := options(t)
	want := fmt.Sprint(train(t, session(t), 1, 3))
	var wait sync.WaitGroup
	for i := 0; i < 8; i++ {
		wait.Add(1)
		go func() {
			defer wait.Done()
			s, err := o.NewSession(model())
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			for step := 1; step <= 3; step++ {
				if err := s.SetLearningRate(1e-3); err != nil {
					t.Error(err)
				}
				if rate, err := s.LearningRate(); rate != 1e-3 || err != nil {
					t.Error(rate, err)
				}
			}
			if got := fmt.Sprint(train(t, s, 1, 3)); got != want {
				t.Errorf("%s beside others, %s alone", got, want)
			}
		}()
	}
	wait.Wait()
}

func resident(t *testing.T) (bytes, threads int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	must(t, err)
	var size, pages int
	fmt.Sscan(string(text), &size, &pages)
	tasks, err := os.ReadDir("/proc/self/task")
	must(t, err)
	return pages * os.Getpagesize(), len(tasks)
}

func TestAThousandSessions(t *testing.T) {
	const rows, atOnce = 4096, 8
	o, err := protrain.NewOptions("dim", fmt.Sprint("batch=", rows), "threads", "1")
	must(t, err)
	defer o.Close()
	ones := make([]float32, 4*rows)
	for i := range ones {
		ones[i] = 1
	}
	step := func(s *protrain.Session) error {
		for _, input := range []string{"x", "u"} {
			if err := protrain.SetInput(s, input, []int64{rows, 4}, ones); err != nil {
				return err
			}
		}
		_, err := s.Step(background)
		return err
	}
	create := func(closed bool) error {
		s, err := o.NewSession(fixture("root.onnx"))
		if err != nil {
			return err
		}
		if err := s.SetLog(func(json.RawMessage) { s.Inputs() }); err != nil {
			return err
		}
		if err := step(s); err != nil || !closed { // the finalizer closes it, although its listener refers to it
			return err
		}
		return s.Close()
	}
	churn := func(n int) {
		var wait sync.WaitGroup
		for first := 0; first < atOnce; first++ {
			wait.Add(1)
			go func(first int) {
				defer wait.Done()
				for i := first; i < n; i += atOnce {
					if err := create(i/atOnce%4 != 0); err != nil {
						t.Error(err)
					}
					if i%32 == 0 {
						runtime.GC()
					}
				}
			}(first)
		}
		wait.Wait()
		for i := 0; i < 3; i++ { // finalizers run in their own goroutine, after a collection
			runtime.GC()
			time.Sleep(100 * time.Millisecond)
		}
	}
	churn(200)
	bytes, threads := resident(t)
	churn(800)
	bytesAfter, threadsAfter := resident(t)
	// A session of this model takes half a megabyte and a thread. The finalizer closes one session in four.
	if bytesAfter > bytes+16<<20 {
		t.Errorf("800 sessions left %d bytes", bytesAfter-bytes)
	}
	if threadsAfter > threads+16 {
		t.Errorf("800 sessions left %d threads", threadsAfter-threads)
	}
}

// Needs tests/bindings/every_code.c preloaded, which makes errors of every code.
func TestEveryCode(t *testing.T) {
	if os.Getenv("LD_PRELOAD") == "" {
		t.Skip("tests/bindings/every_code.c is not preloaded")
	}
	o := options(t)
	for code := protrain.ErrArg; code <= protrain.ErrCancelled; code++ {
		err := o.Set("every_code", fmt.Sprint(int(code)))
		var e *protrain.Error
		if !errors.As(err, &e) || !errors.Is(err, code) || errors.Is(err, code+1) {
			t.Fatalf("code %d is %#v", int(code), err)
		}
		if e.Text != fmt.Sprint("text of ", int(code)) || e.Subject != fmt.Sprint("subject of ", int(code)) ||
			e.Usable != (code%2 == 1) {
			t.Errorf("%#v", e)
		}
		if strings.Contains(code.Error(), "code") {
			t.Errorf("code %d has no name", int(code))
		}
	}
	if living, err := o.Get("every_code"); err != nil || living != "0" {
		t.Errorf("%s errors were not destroyed, %v", living, err)
	}
}
