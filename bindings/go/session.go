package protrain

import (
	"context"
	"encoding/json"
	"errors"

	"protrain/internal/lib"
)

// Session is a model in training: its weights, its optimizer's state, and the memory and threads that a step needs.
type Session struct {
	c   *object
	log func(json.RawMessage)
}

// Close frees the session, its threads and all its memory. While another call runs, Close returns ErrBusy and does
// nothing. Closing again does nothing.
func (s *Session) Close() error { return s.c.close() }

// SetLog sets the function that receives the session's log, one JSON object per event; nil for none. It gets
// {"event":"created",...} at once, {"event":"step",...} after each step, {"event":"saved",...} after each checkpoint,
// and {"event":"alarm",...} for what makes a run fail without an error. log runs on the goroutine of the call that
// logs. It may call nothing of the session but Cancel. If log panics, it gets no more events in that call, which goes
// on to its end. The call then panics with the same value. But if the call fails, as after the event of an alarm, it
// returns its error, whose text ends in that value. log must not end the goroutine (runtime.Goexit, and so FailNow and
// Fatal of testing.T): nothing can stop that, the call never ends, and the session stays busy.
func (s *Session) SetLog(log func(event json.RawMessage)) error {
	return s.c.connect(&s.log, log, lib.Session_log)
}

// Step trains on the present inputs: forward, backward, update of every trained parameter. It returns the loss before
// the update. When ctx is done, Step stops as with Cancel, and its error is both ErrCancelled and the context's.
func (s *Session) Step(ctx context.Context) (float32, error) { return s.loss(ctx, lib.Step) }

// Eval computes the loss on the present inputs and changes nothing. A context stops it in the same way as Step.
func (s *Session) Eval(ctx context.Context) (float32, error) { return s.loss(ctx, lib.Eval) }

// Predict computes the outputs that the option keep_outputs names, on the present inputs. Only inputs that they depend
// on must be set. ReadOutput reads them, until the next step, evaluation or prediction.
func (s *Session) Predict() error { return s.c.call(s.log, lib.Predict) }

// Cancel asks the step, evaluation, prediction or check of gradients that is inside the session, or else the next one,
// to stop. That call returns ErrCancelled, once, and the session stays usable. A step that has updated no parameter yet
// stops and changes nothing. Any other step runs to its end. Any goroutine may call Cancel, at any time.
func (s *Session) Cancel() { s.c.cancel() }

func (o *object) cancel() {
	o.life.Lock()
	defer o.life.Unlock()
	lib.Session_cancel(o.handle) // does nothing for handle 0
}

func (s *Session) loss(ctx context.Context, function func(uintptr, *float32) *lib.Failure) (float32, error) {
	over := ctx.Err() != nil
	several := s.several()
	if over && !several {
		return 0, cancelled(ctx, "cancelled before it began")
	}
	var loss float32
	err := s.c.call(s.log, func(session uintptr) *lib.Failure {
		if over {
			lib.Session_cancel(session) // the call is made all the same, because the other ranks wait for it
		}
		if over || ctx.Done() == nil {
			return function(session, &loss)
		}
		stop := s.c.cancelWhenDone(ctx)
		failure := function(session, &loss)
		if stop() && !several && (failure == nil || Code(failure.Code) != ErrCancelled) {
			// The context was done only after the call, so its cancel would stop the next call. An evaluation consumes the
			// cancel. With several ranks the cancel stays, because all ranks must stop in the same call: their next one.
			var unused float32
			lib.Eval(session, &unused)
		}
		return failure
	})
	if ctx.Err() != nil && errors.Is(err, ErrCancelled) {
		err = cancelled(ctx, err.Error())
	}
	return loss, err
}

func (s *Session) several() bool {
	count, err := s.RankCount()
	return err == nil && count > 1
}

func cancelled(ctx context.Context, text string) error {
	return &Error{Code: ErrCancelled, Text: text, Usable: true, cause: ctx.Err()}
}

// cancelWhenDone cancels the session when ctx is done, until stop is called. stop returns whether the session was
// cancelled.
func (o *object) cancelWhenDone(ctx context.Context) (stop func() bool) {
	over, done := make(chan struct{}), make(chan bool)
	go func() {
		select {
		case <-ctx.Done():
			o.cancel()
			done <- true
		case <-over:
			done <- false
		}
	}()
	return func() bool {
		close(over)
		return <-done
	}
}

// GradNorm returns the L2 norm of all trained parameters' gradients in the last complete step, before any clipping.
func (s *Session) GradNorm() (float64, error) { return get(s, lib.Session_grad_norm) }

// StepCount returns the number of steps taken, including those before the checkpoint that the session resumed from.
func (s *Session) StepCount() (uint64, error) { return get(s, lib.Session_step_count) }

// Rank returns the number of this rank among those that train together: 0 for the first, and for a session alone.
func (s *Session) Rank() (uint64, error) { return get(s, lib.Session_rank) }

// RankCount returns the number of ranks that train together: 1 for a session alone.
func (s *Session) RankCount() (uint64, error) { return get(s, lib.Session_rank_count) }

// LearningRate returns the learning rate of the next step, as the option schedule has it.
func (s *Session) LearningRate() (float64, error) { return get(s, lib.Session_learning_rate) }

// SetLearningRate sets the learning rate of all following steps. The option schedule still applies to it.
func (s *Session) SetLearningRate(rate float64) error {
	return s.c.call(s.log, func(session uintptr) *lib.Failure { return lib.Session_set_learning_rate(session, rate) })
}

// Save writes a checkpoint into a new folder in directory: weights, optimizer state, step, seed. A session with the
// option resume continues from it, bit for bit.
func (s *Session) Save(directory string) error { return s.tell(directory, lib.Session_save) }

// Export writes the model with its present weights, as an ONNX file.
func (s *Session) Export(path string) error { return s.tell(path, lib.Session_export) }

// ExportAdapters writes the adapters of the options lora or adapter into directory, in the form of Hugging Face's PEFT.
func (s *Session) ExportAdapters(directory string) error {
	return s.tell(directory, lib.Session_export_adapters)
}

// LoadAdapters gives the session's adapters the values of adapters that ExportAdapters or PEFT wrote into directory.
// These must have the same modules and ranks.
func (s *Session) LoadAdapters(directory string) error {
	return s.tell(directory, lib.Session_load_adapters)
}

// UseAdapters switches the session's adapters off or on. While they are off, Eval and Predict compute with the base
// alone, and nothing else is possible.
func (s *Session) UseAdapters(use bool) error {
	on := int32(0)
	if use {
		on = 1
	}
	return s.c.call(s.log, func(session uintptr) *lib.Failure { return lib.Session_use_adapters(session, on) })
}

func (s *Session) tell(text string, function func(uintptr, string) *lib.Failure) error {
	if err := checkTexts(text); err != nil {
		return err
	}
	return s.c.call(s.log, func(session uintptr) *lib.Failure { return function(session, text) })
}

// Plan returns the plan: where each chunk of parameters is stored, and what each block does with its activations. The
// option plan takes a file with this text.
func (s *Session) Plan() (json.RawMessage, error) {
	text, err := s.c.text(s.log, lib.Session_plan)
	return json.RawMessage(text), err
}

// Report returns a report on the time and memory of a step.
func (s *Session) Report() (json.RawMessage, error) {
	text, err := s.c.text(s.log, lib.Session_report)
	return json.RawMessage(text), err
}

// CheckGradients compares the gradients of a step on the present inputs with slopes of the loss in float64, for the
// given number of elements of each parameter. It changes no parameter.
func (s *Session) CheckGradients(samples int) (json.RawMessage, error) {
	text, err := s.c.text(s.log, at(samples, lib.Session_check_gradients))
	return json.RawMessage(text), err
}

// Program returns every instruction of a step, one per line.
func (s *Session) Program() (string, error) { return s.c.text(s.log, lib.Session_program) }

// Graph returns every node of forward and backward, one per line, after all fusion.
func (s *Session) Graph() (string, error) { return s.c.text(s.log, lib.Session_graph) }
