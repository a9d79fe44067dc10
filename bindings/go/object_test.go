package protrain_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"protrain"
)

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
