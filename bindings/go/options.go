package protrain

import (
	"encoding/json"
	"fmt"

	"protrain/internal/lib"
)

// Options hold the settings of a session: pairs of key and value, each checked when it is set. The same options may
// serve any number of sessions.
type Options struct {
	c   *object
	log func(json.RawMessage)
}

// NewOptions creates options from pairs of key and value. Everything else has its default.
func NewOptions(pairs ...string) (*Options, error) {
	if len(pairs)%2 != 0 {
		return nil, &Error{Code: ErrArg, Text: fmt.Sprintf("the key %q has no value", pairs[len(pairs)-1]), Usable: true}
	}
	var handle uintptr
	if err := errorOf(lib.Options_create(&handle)); err != nil {
		return nil, err
	}
	o := &Options{c: newObject(handle, lib.Options_destroy)}
	for i := 0; i < len(pairs); i += 2 {
		if err := o.Set(pairs[i], pairs[i+1]); err != nil {
			o.Close()
			return nil, err
		}
	}
	return o, nil
}

// Close frees the options. Sessions made from them live on. Closing again does nothing.
func (o *Options) Close() error { return o.c.close() }

// Set sets one option; protrain.h and Help list the keys. For a list (dim, shapes, constant, also_loss, group, no_decay,
// trainable, frozen, tie, lora, keep_gradients, keep_outputs), each call adds one item. For any other option, a call
// replaces the value.
func (o *Options) Set(key, value string) error {
	if err := checkTexts(key, value); err != nil {
		return err
	}
	return o.c.call(nil, func(options uintptr) *lib.Failure { return lib.Options_set(options, key, value) })
}

// Get returns the value of an option: the one that was set, or the default. Items of a list are separated by newlines.
func (o *Options) Get(key string) (string, error) { return o.ask(key, lib.Options_get) }

// Help lists all options, as a JSON array of {"key", "type", "default", "range", "sentence"}.
func (o *Options) Help() (json.RawMessage, error) {
	text, err := o.c.text(nil, lib.Options_help)
	return json.RawMessage(text), err
}

// Check checks whether a model can be trained, without training it. The answer lists everything that is missing, and
// what was found in the model.
func (o *Options) Check(model string) (json.RawMessage, error) {
	text, err := o.ask(model, lib.Model_check)
	return json.RawMessage(text), err
}

// Plan predicts how a model would train, without training it: the plan that would be chosen, the time and memory of a
// step, and the reasons.
func (o *Options) Plan(model string) (json.RawMessage, error) {
	text, err := o.ask(model, lib.Model_plan)
	return json.RawMessage(text), err
}

// Profile measures this machine on the kernels that a model needs. The answer describes the machine.
func (o *Options) Profile(model string) (json.RawMessage, error) {
	text, err := o.ask(model, lib.Model_profile)
	return json.RawMessage(text), err
}

// Merge writes a model to path with an adapter merged into its weights, without training it. adapter is a directory, as
// for the option adapter.
func (o *Options) Merge(model, adapter, path string) error {
	if err := checkTexts(model, adapter, path); err != nil {
		return err
	}
	return o.c.call(o.log, func(options uintptr) *lib.Failure { return lib.Model_merge(options, model, adapter, path) })
}

// SetLog sets the function that receives the progress of long calls with these options, one JSON object per event; nil
// for none. log runs on the goroutine of the call, and must not use the options. If log panics, so does the call. But if
// the call fails, it returns its error, whose text ends in the panic's value.
func (o *Options) SetLog(log func(event json.RawMessage)) error {
	return o.c.connect(&o.log, log, lib.Options_log)
}

// NewSession reads a model and makes it ready to train. Several goroutines may create sessions from the same options at
// once, unless the options have a log.
func (o *Options) NewSession(model string) (*Session, error) {
	if err := checkTexts(model); err != nil {
		return nil, err
	}
	return o.newSession(func(options uintptr, session *uintptr) *lib.Failure {
		return lib.Session_create(options, model, session)
	})
}

// NewSessionFromBytes is NewSession for a model in memory: the bytes of an ONNX file. External data is read from
// directory, and nothing outside of it is opened. directory is "" for a model without external data.
func (o *Options) NewSessionFromBytes(model []byte, directory string) (*Session, error) {
	if err := checkTexts(directory); err != nil {
		return nil, err
	}
	return o.newSession(func(options uintptr, session *uintptr) *lib.Failure {
		return lib.Session_create_from_bytes(options, model, directory, session)
	})
}

func (o *Options) newSession(make func(options uintptr, session *uintptr) *lib.Failure) (session *Session, err error) {
	var handle uintptr
	defer func() {
		if session == nil { // the log panicked
			lib.Session_destroy(handle)
		}
	}()
	create := func(options uintptr) *lib.Failure { return make(options, &handle) }
	if o.log == nil {
		err = o.c.share(create)
	} else {
		err = o.c.call(o.log, create)
	}
	if err != nil {
		return nil, err
	}
	return &Session{c: newObject(handle, lib.Session_destroy)}, nil
}

func (o *Options) ask(question string, function func(uintptr, string, *string) *lib.Failure) (string, error) {
	if err := checkTexts(question); err != nil {
		return "", err
	}
	return o.c.text(o.log, func(options uintptr, answer *string) *lib.Failure {
		return function(options, question, answer)
	})
}
