// Classify trains a classifier of texts: which of several files does a window of bytes come from? Every fifth window is
// held out. After each pass over the others, it evaluates the model on the held-out ones and saves it if it is the best
// so far. It stops after three passes without a better one, and exports the best.
//
//	classify MODEL.onnx DIRECTORY TEXT TEXT ...
//
// The model has an input tokens (int64, batch x 64) of bytes and an output logits (batch x classes), one class for each
// text. It has no loss; the options add one.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"protrain"
)

const batch, length, patience, mostPasses = 32, 64, 3, 40

// samples are windows of bytes, and the number of the text that each comes from.
type samples struct {
	tokens [][]byte
	labels []int64
}

// at returns which sample comes at place number of a pass. Each pass has an order of its own. Every sample comes once:
// multiples of 7919 modulo the count differ from each other, because 7919 is prime, unless it divides the count.
func (s *samples) at(number, pass int) int { return (number*7919 + pass*104729) % len(s.labels) }

func (s *samples) batches() int { return len(s.labels) / batch }

// set sets the samples of a batch.
func (s *samples) set(session *protrain.Session, number, pass int) error {
	tokens, labels := make([]int64, 0, batch*length), make([]int64, 0, batch)
	for row := 0; row < batch; row++ {
		at := s.at(number*batch+row, pass)
		for _, token := range s.tokens[at] {
			tokens = append(tokens, int64(token))
		}
		labels = append(labels, s.labels[at])
	}
	if err := protrain.SetInput(session, "tokens", []int64{batch, length}, tokens); err != nil {
		return err
	}
	return protrain.SetInput(session, "labels", []int64{batch}, labels)
}

// countRight returns how many samples of the present batch have their largest logit at their label.
func (s *samples) countRight(session *protrain.Session, number, classes int) (int, error) {
	logits := make([]float32, batch*classes)
	if err := session.Predict(); err != nil {
		return 0, err
	}
	if err := protrain.ReadOutput(session, "logits", logits); err != nil {
		return 0, err
	}
	right := 0
	for row := 0; row < batch; row++ {
		largest, own := 0, logits[row*classes:(row+1)*classes]
		for i, logit := range own {
			if logit > own[largest] {
				largest = i
			}
		}
		if int64(largest) == s.labels[s.at(number*batch+row, 0)] {
			right++
		}
	}
	return right, nil
}

// evaluate returns the mean loss and the share of right answers.
func (s *samples) evaluate(ctx context.Context, session *protrain.Session, classes int) (float32, float64, error) {
	sum, right := 0.0, 0
	for number := 0; number < s.batches(); number++ {
		if err := s.set(session, number, 0); err != nil {
			return 0, 0, err
		}
		loss, err := session.Eval(ctx)
		if err != nil {
			return 0, 0, err
		}
		count, err := s.countRight(session, number, classes)
		if err != nil {
			return 0, 0, err
		}
		sum += float64(loss)
		right += count
	}
	return float32(sum / float64(s.batches())), float64(right) / float64(s.batches()*batch), nil
}

func main() {
	if len(os.Args) < 5 {
		fmt.Fprintln(os.Stderr, "usage: classify MODEL.onnx DIRECTORY TEXT TEXT ...")
		os.Exit(2)
	}
	if err := classify(context.Background(), os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "classify:", err)
		os.Exit(1)
	}
}

func read(texts []string) (train, heldOut samples, err error) {
	for label, path := range texts {
		text, err := os.ReadFile(path)
		if err != nil {
			return train, heldOut, err
		}
		for window := 0; (window+1)*length <= len(text); window++ {
			to := &train
			if window%5 == 4 {
				to = &heldOut
			}
			to.tokens = append(to.tokens, text[window*length:(window+1)*length])
			to.labels = append(to.labels, int64(label))
		}
	}
	if heldOut.batches() == 0 {
		err = errors.New("the texts are too short")
	}
	return train, heldOut, err
}

func classify(ctx context.Context, model, directory string, texts []string) error {
	train, heldOut, err := read(texts)
	if err != nil {
		return err
	}
	options, err := protrain.NewOptions("dim", "batch=32", "loss", "cross_entropy", "loss_output", "logits",
		"keep_outputs", "logits", "learning_rate", "3e-3")
	if err != nil {
		return err
	}
	defer options.Close()
	session, err := options.NewSession(model)
	if err != nil {
		return err
	}
	defer session.Close()
	best, bestLoss := "", float32(0)
	for pass, without := 1, 0; pass <= mostPasses && without < patience; pass++ {
		for number := 0; number < train.batches(); number++ {
			if err := train.set(session, number, pass); err != nil {
				return err
			}
			if _, err := session.Step(ctx); err != nil {
				return err
			}
		}
		loss, accuracy, err := heldOut.evaluate(ctx, session, len(texts))
		if err != nil {
			return err
		}
		fmt.Printf("pass %d  loss %.4f  accuracy %.3f\n", pass, loss, accuracy)
		without++
		if best != "" && loss >= bestLoss {
			continue
		}
		if err := session.Save(directory); err != nil {
			return err
		}
		steps, err := session.StepCount() // the checkpoint's folder is named after it
		if err != nil {
			return err
		}
		best, bestLoss, without = filepath.Join(directory, fmt.Sprintf("step-%010d", steps)), loss, 0
	}
	session.Close() // the next session needs its memory

	if err := options.Set("resume", best); err != nil {
		return err
	}
	if session, err = options.NewSession(model); err != nil {
		return err
	}
	defer session.Close()
	return session.Export(filepath.Join(directory, "classifier.onnx"))
}
