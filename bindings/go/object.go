package protrain

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"protrain/internal/lib"
)

// object owns the C object of Options or a Session, and has the finalizer. It refers to the caller's log function only
// during a call. Otherwise a log function that refers to its own session would keep both alive for ever.
type object struct {
	calls    sync.RWMutex // held during each call
	handle   uintptr      // C's pointer; 0 once closed
	life     sync.Mutex   // held to change handle, and to use it without holding calls
	destroy  func(handle uintptr)
	listener *listener
	director lib.Log // passes C's log lines to listener; nil until there is a log
}

func newObject(handle uintptr, destroy func(uintptr)) *object {
	o := &object{handle: handle, destroy: destroy, listener: new(listener)}
	runtime.SetFinalizer(o, (*object).close)
	return o
}

func (o *object) close() error {
	if !o.calls.TryLock() {
		return errBusy
	}
	defer o.calls.Unlock()
	o.life.Lock()
	defer o.life.Unlock()
	if o.handle == 0 {
		return nil
	}
	o.destroy(o.handle)
	o.handle = 0
	if o.director != nil {
		lib.DeleteDirectorLog(o.director)
	}
	runtime.SetFinalizer(o, nil)
	return nil
}

// call runs one function of C while log receives the events. If log panics, the call panics, or fails with an error
// that says so.
func (o *object) call(log func(json.RawMessage), function func(handle uintptr) *lib.Failure) error {
	if !o.calls.TryLock() {
		return errBusy
	}
	defer o.calls.Unlock()
	if o.handle == 0 {
		return ErrClosed
	}
	o.listener.log = log
	failure := function(o.handle)
	o.listener.log = nil
	thrown := o.listener.thrown
	o.listener.thrown = nil
	if thrown == nil {
		return errorOf(failure)
	}
	if failure == nil {
		panic(thrown)
	}
	failure.Text += fmt.Sprint("; the log panicked too: ", thrown)
	return errorOf(failure)
}

// share runs a C function that only reads the object. Several may run at once. No log receives their events.
func (o *object) share(function func(handle uintptr) *lib.Failure) error {
	if !o.calls.TryRLock() {
		return errBusy
	}
	defer o.calls.RUnlock()
	if o.handle == 0 {
		return ErrClosed
	}
	return errorOf(function(o.handle))
}

// text runs a call that returns text of C, and copies the text before the next call can overwrite it.
func (o *object) text(log func(json.RawMessage), function func(handle uintptr, text *string) *lib.Failure) (string,
	error) {
	var text string
	err := o.call(log, func(handle uintptr) *lib.Failure {
		failure := function(handle, &text)
		text = strings.Clone(text)
		return failure
	})
	return text, err
}

// connect makes C send events to the object's listener, or to nobody if log is nil, and keeps log in *held. log is kept
// even if it panics during this call, because C keeps the listener too.
func (o *object) connect(held *func(json.RawMessage), log func(json.RawMessage),
	set func(handle uintptr, log lib.Log) *lib.Failure) error {
	return o.call(log, func(handle uintptr) *lib.Failure {
		if log != nil && o.director == nil {
			o.director = lib.NewDirectorLog(o.listener)
		}
		director := o.director
		if log == nil {
			director = nil
		}
		failure := set(handle, director)
		if failure == nil {
			*held = log
		}
		return failure
	})
}

// listener receives the events from C. Everything it refers to lives until the object is closed. So it refers to the
// caller's function only during a call, and never to the object.
type listener struct {
	log    func(json.RawMessage)
	thrown any // the value of log's panic, which call takes up again, because no panic may pass through C
}

// Event receives one line. C calls it on the thread of the call that logs.
func (l *listener) Event(line string) {
	if l.log == nil || l.thrown != nil {
		return
	}
	defer func() { l.thrown = recover() }()
	l.log(json.RawMessage(line))
}
