package protrain_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"protrain"
)

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

func TestListenerStaysSetThoughItPanicsAtOnce(t *testing.T) {
	s := session(t)
	events := 0
	func() {
		defer func() { recover() }()
		s.SetLog(func(json.RawMessage) {
			if events++; events == 1 {
				panic("created")
			}
		})
	}()
	train(t, s, 1, 2)
	if events != 3 {
		t.Errorf("%d events, not the creation and two steps", events)
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

// The step that fails logs an alarm before it returns.
func TestPanicOfAListenerDoesNotHideTheErrorOfTheCall(t *testing.T) {
	o, err := protrain.NewOptions("dim", "batch=2", "threads", "1")
	must(t, err)
	defer o.Close()
	s, err := o.NewSession(fixture("root.onnx"))
	must(t, err)
	defer s.Close()
	values := []float32{-1, -1, -1, -1, -1, -1, -1, -1} // the model takes square roots
	must(t, protrain.SetInput(s, "x", []int64{2, 4}, values))
	must(t, protrain.SetInput(s, "u", []int64{2, 4}, values))
	must(t, s.SetLog(func(line json.RawMessage) {
		if strings.Contains(string(line), `"event":"alarm"`) {
			panic("mine")
		}
	}))
	_, err = s.Step(background)
	if !errors.Is(err, protrain.ErrNonFinite) || !strings.HasSuffix(fmt.Sprint(err), "; the log panicked too: mine") {
		t.Error(err)
	}
	if count, err := s.StepCount(); err != nil || count != 0 {
		t.Errorf("%d steps, %v", count, err)
	}
}
