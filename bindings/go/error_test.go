package protrain_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"protrain"
)

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
