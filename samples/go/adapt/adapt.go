// Adapt trains low-rank adapters of a language model on the bytes of a text, compares the model with its base, saves the
// adapters in the form of Hugging Face's PEFT, and writes the merged model.
//
//	adapt MODEL.onnx TEXT STEPS PATTERN DIRECTORY
//
// PATTERN names the weights to adapt, such as '*.c_attn.weight'. The model is one for finetune.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"protrain"
)

const batch, sequence = 4, 32

func main() {
	if len(os.Args) != 6 {
		usage()
	}
	steps, err := strconv.Atoi(os.Args[3])
	if err != nil {
		usage()
	}
	if err := adapt(context.Background(), os.Args[1], os.Args[2], steps, os.Args[4], os.Args[5]); err != nil {
		fmt.Fprintln(os.Stderr, "adapt:", err)
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: adapt MODEL.onnx TEXT STEPS PATTERN DIRECTORY")
	os.Exit(2)
}

func adapt(ctx context.Context, model, textFile string, steps int, pattern, directory string) error {
	text, err := os.ReadFile(textFile)
	if err != nil {
		return err
	}
	if len(text) == 0 {
		return errors.New("there is nothing to read in the text")
	}
	options, err := protrain.NewOptions("dim", "batch=4", "dim", "sequence=32", "learning_rate", "3e-3",
		"lora", pattern, "lora_rank", "8", "lora_alpha", "16")
	if err != nil {
		return err
	}
	defer options.Close()
	session, err := options.NewSession(model)
	if err != nil {
		return err
	}
	defer session.Close()
	for step := 1; step <= steps; step++ {
		if err := set(session, text, step); err != nil {
			return err
		}
		loss, err := session.Step(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("step %d loss %f\n", step, loss)
	}
	if err := compare(ctx, session); err != nil {
		return err
	}
	if err := session.ExportAdapters(filepath.Join(directory, "adapter")); err != nil {
		return err
	}
	return session.Export(filepath.Join(directory, "merged.onnx"))
}

// set gives the session the next windows of the text, which begins again at its end. A byte is a token.
func set(session *protrain.Session, text []byte, step int) error {
	tokens := make([]int64, batch*sequence)
	for i := range tokens {
		tokens[i] = int64(text[((step-1)*len(tokens)+i)%len(text)])
	}
	for _, input := range []string{"input_ids", "labels"} {
		if err := protrain.SetInput(session, input, []int64{batch, sequence}, tokens); err != nil {
			return err
		}
	}
	return nil
}

// compare prints the last batch's losses with the adapters and without. One session has both models.
func compare(ctx context.Context, session *protrain.Session) error {
	adapted, err := session.Eval(ctx)
	if err != nil {
		return err
	}
	if err := session.UseAdapters(false); err != nil {
		return err
	}
	base, err := session.Eval(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("adapted %f base %f\n", adapted, base)
	return session.UseAdapters(true)
}
