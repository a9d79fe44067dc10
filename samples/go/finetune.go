// Finetune trains a language model on the bytes of a text file, within a memory budget. It saves a checkpoint half-way
// and resumes from it.
//
//	finetune MODEL.onnx TEXT STEPS MEMORY DIRECTORY
//
// The model is any ONNX file with inputs input_ids and labels (int64, batch x sequence), a vocabulary of at least 256
// tokens, and one scalar output: the next-token loss, for which the graph itself shifts the labels.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"

	"protrain"
)

const batch, sequence = 8, 64

func main() {
	if len(os.Args) != 6 {
		usage()
	}
	steps, err := strconv.Atoi(os.Args[3])
	if err != nil || steps < 1 {
		usage()
	}
	// Ctrl-C stops the step in progress, and with it the program.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := finetune(ctx, os.Args[1], os.Args[2], steps, os.Args[4], os.Args[5]); err != nil {
		fmt.Fprintln(os.Stderr, "finetune:", err)
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: finetune MODEL.onnx TEXT STEPS MEMORY DIRECTORY")
	os.Exit(2)
}

func finetune(ctx context.Context, model, textFile string, steps int, memory, directory string) error {
	options, err := protrain.NewOptions("dim", "batch=8", "dim", "sequence=64", "learning_rate", "1e-3",
		"weight_decay", "0.1", "memory", memory, "offload_dir", directory)
	if err != nil {
		return err
	}
	defer options.Close()
	text, err := os.ReadFile(textFile)
	if err != nil {
		return err
	}
	if len(text) == 0 {
		return errors.New("there is nothing to read in the text")
	}
	file, err := os.Create(filepath.Join(directory, "run.jsonl"))
	if err != nil {
		return err
	}
	defer file.Close()
	run := bufio.NewWriter(file)

	// Trains the first half, up to a checkpoint.
	session, err := open(options, model)
	if err != nil {
		return err
	}
	defer session.Close()
	if err := train(ctx, session, text, run, 1, steps/2, steps); err != nil {
		return err
	}
	if err := session.Save(directory); err != nil {
		return err
	}
	taken, err := session.StepCount() // the checkpoint's folder is named after it
	if err != nil {
		return err
	}
	session.Close() // the next session needs its memory

	// Trains the second half, from the checkpoint. This could be another process on another day.
	checkpoint := filepath.Join(directory, fmt.Sprintf("step-%010d", taken))
	if err := options.Set("resume", checkpoint); err != nil {
		return err
	}
	if session, err = open(options, model); err != nil {
		return err
	}
	defer session.Close()
	if err := train(ctx, session, text, run, steps/2+1, steps, steps); err != nil {
		return err
	}
	if err := run.Flush(); err != nil {
		return err
	}
	return session.Export(filepath.Join(directory, "trained.onnx"))
}

// open creates a session that prints its progress.
func open(options *protrain.Options, model string) (*protrain.Session, error) {
	session, err := options.NewSession(model)
	if err != nil {
		return nil, err
	}
	return session, session.SetLog(func(line json.RawMessage) {
		var event struct {
			Event string
			Step  int
			Loss  float64
		}
		if json.Unmarshal(line, &event) == nil && event.Event == "step" && (event.Step == 1 || event.Step%10 == 0) {
			fmt.Printf("step %d  loss %.4f\n", event.Step, event.Loss)
		}
	})
}

// train runs steps first to last of steps.
func train(ctx context.Context, session *protrain.Session, text []byte, run *bufio.Writer, first, last,
	steps int) error {
	dims := []int64{batch, sequence}
	tokens := make([]int64, batch*sequence)
	for step := first; step <= last; step++ {
		for i := range tokens { // the text begins again at its end
			tokens[i] = int64(text[((step-1)*len(tokens)+i)%len(text)])
		}
		if err := protrain.SetInput(session, "input_ids", dims, tokens); err != nil {
			return err
		}
		if err := protrain.SetInput(session, "labels", dims, tokens); err != nil {
			return err
		}
		if err := session.SetLearningRate(1e-3 * (1.0 - 0.9*float64(step)/float64(steps))); err != nil {
			return err
		}
		loss, err := session.Step(ctx)
		if err != nil {
			return err
		}
		norm, err := session.GradNorm()
		if err != nil {
			return err
		}
		// The file holds the bits of both, so two equal runs write equal files.
		fmt.Fprintf(run, `{"step":%d,"loss_bits":"%08x","grad_norm_bits":"%08x"}`+"\n", step, math.Float32bits(loss),
			math.Float32bits(float32(norm)))
	}
	return nil
}
