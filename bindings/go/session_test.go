package protrain_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"protrain"
)

func TestGradientsAreChecked(t *testing.T) {
	o, err := protrain.NewOptions("dim", fmt.Sprint("batch=", batch))
	must(t, err)
	defer o.Close()
	s, err := o.NewSession(fixture("root.onnx"))
	must(t, err)
	defer s.Close()
	values := make([]float32, 4*batch) // not 0, where a square root has no slope
	for i := range values {
		values[i] = 1 + float32(i%5)
	}
	for _, input := range []string{"x", "u"} {
		must(t, protrain.SetInput(s, input, []int64{batch, 4}, values))
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
