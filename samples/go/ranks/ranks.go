// Ranks is a service that trains with several processes of its own, called ranks. It starts itself once for each rank.
// If one of them dies, it starts all of them again from the last checkpoint.
//
//	ranks MODEL.onnx TEXT STEPS RANKS DIRECTORY
//
// The model is any ONNX file with inputs input_ids and labels (int64, batch x sequence), a vocabulary of at least 256
// tokens, and one scalar output: the next-token loss, for which the graph itself shifts the labels. RANKS must divide
// 12. Every number of ranks gives the same trained model, byte for byte.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"

	"protrain"
)

const (
	batch, sequence = 2, 64
	batches         = 12 // in a step, of all ranks together
	saveEvery       = 5  // steps
	attempts        = 3
	rankVariable    = "RANKS_RANK" // tells a process which rank it is
	meetVariable    = "RANKS_MEET" // and where it meets the others: a folder
)

type job struct {
	model, text, directory string
	steps, ranks           int
}

func main() {
	job, err := read(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "usage: ranks MODEL.onnx TEXT STEPS RANKS DIRECTORY:", err)
		os.Exit(2)
	}
	// Ctrl-C reaches all processes of a terminal. Each rank's step then ends with an error, and so does the service.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if rank := os.Getenv(rankVariable); rank != "" {
		err = train(ctx, job, rank)
	} else {
		err = serve(ctx, job)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ranks:", err)
		os.Exit(1)
	}
}

func read(words []string) (job, error) {
	if len(words) != 5 {
		return job{}, errors.New("there are five arguments")
	}
	steps, err := strconv.Atoi(words[2])
	if err != nil {
		return job{}, err
	}
	ranks, err := strconv.Atoi(words[3])
	if err == nil && (ranks < 1 || batches%ranks != 0) {
		err = fmt.Errorf("%d ranks do not divide %d batches", ranks, batches)
	}
	return job{words[0], words[1], words[4], steps, ranks}, err
}

// serve starts the ranks, and starts them again after a failure, until they have trained all steps. It makes at most
// `attempts` attempts.
func serve(ctx context.Context, job job) error {
	var err error
	for attempt := 1; attempt <= attempts; attempt++ {
		if err = start(job); err == nil || ctx.Err() != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "ranks: attempt %d: %v\n", attempt, err)
	}
	return err
}

// start starts a process for each rank and waits until all have ended.
func start(job job) error {
	meet, err := os.MkdirTemp("", "ranks") // a new one for each session
	if err != nil {
		return err
	}
	defer os.RemoveAll(meet)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var started []*exec.Cmd
	for rank := 0; rank < job.ranks; rank++ {
		process := exec.Command(self, os.Args[1:]...)
		process.Env = append(os.Environ(), fmt.Sprintf("%s=%d", rankVariable, rank), meetVariable+"="+meet)
		process.Stdout, process.Stderr = os.Stdout, os.Stderr
		if err = process.Start(); err != nil {
			break // those that have begun give up when the last rank does not come
		}
		started = append(started, process)
	}
	for rank, process := range started {
		if left := process.Wait(); left != nil && err == nil {
			err = fmt.Errorf("rank %d: %w", rank, left)
		}
	}
	return err
}

// train is the work of one rank.
func train(ctx context.Context, job job, rank string) error {
	options, err := protrain.NewOptions("dim", "batch=2", "dim", "sequence=64", "learning_rate", "1e-3", "threads", "1",
		"accumulation", strconv.Itoa(batches/job.ranks))
	if err != nil {
		return err
	}
	defer options.Close()
	set := map[string]string{}
	if job.ranks > 1 {
		set = map[string]string{"ranks": strconv.Itoa(job.ranks), "rank": rank, "rendezvous": os.Getenv(meetVariable),
			"comm_timeout": "30"}
	}
	if saved, _ := filepath.Glob(filepath.Join(job.directory, "step-*")); len(saved) > 0 {
		set["resume"] = job.directory // the newest
	}
	for key, value := range set {
		if err := options.Set(key, value); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(job.text)
	if err != nil {
		return err
	}
	if len(text) == 0 {
		return errors.New("there is nothing to read in the text")
	}
	session, err := options.NewSession(job.model)
	if err != nil {
		return err
	}
	defer session.Close()
	if err := steps(ctx, session, text, job); err != nil {
		return err
	}
	return session.Export(filepath.Join(job.directory, "trained.onnx")) // rank 0 writes it
}

// steps trains all steps that the session has not taken yet. Each rank takes its own batches.
func steps(ctx context.Context, session *protrain.Session, text []byte, job job) error {
	rank, err := session.Rank()
	if err != nil {
		return err
	}
	taken, err := session.StepCount()
	if err != nil {
		return err
	}
	tokens := make([]int64, batch*sequence)
	for step := int(taken) + 1; step <= job.steps; step++ {
		var loss float32
		for i := int(rank); i < batches; i += job.ranks {
			from := ((step-1)*batches + i) * len(tokens)
			for t := range tokens { // the text begins again at its end
				tokens[t] = int64(text[(from+t)%len(text)])
			}
			for _, input := range []string{"input_ids", "labels"} {
				if err := protrain.SetInput(session, input, []int64{batch, sequence}, tokens); err != nil {
					return err
				}
			}
			if loss, err = session.Step(ctx); err != nil {
				return err
			}
		}
		if rank == 0 {
			fmt.Printf("step %d  loss %.4f\n", step, loss)
		}
		if step%saveEvery == 0 {
			if err := session.Save(job.directory); err != nil {
				return err
			}
		}
	}
	return nil
}
