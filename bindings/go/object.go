package protrain

import (
	"encoding/json"
	"runtime"
	"strings"
	"sync"

	"protrain/internal/lib"
)

// object is the C side of Options or a Session, and has the finalizer. Outside of a call it refers to nothing of the
// caller's. Otherwise a log function that refers to its own session would keep both alive for ever.
type object struct {
	calls    sync.RWMutex // held by the calls that are inside
	handle   uintptr      // C's pointer; 0 once closed
	life     sync.Mutex   // held to change handle, and to use it without being inside
	destroy  func(handle uintptr)
	listener *listener
	director lib.Log // C's view of listener; nil until there is a log
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

// call runs one function of C while log receives the events. If log panics, the call panics.
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
	if thrown := o.listener.thrown; thrown != nil {
		o.listener.thrown = nil
		panic(thrown)
	}
	return errorOf(failure)
}

// share runs a function of C that only reads the object. Several may run at once, and none has a listener.
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

// text runs a call whose answer C lends, and copies the answer before the next call can run.
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

// connect gives C the object's listener for log, or none for nil.
func (o *object) connect(log func(json.RawMessage), set func(handle uintptr, log lib.Log) *lib.Failure) error {
	return o.call(log, func(handle uintptr) *lib.Failure {
		if log == nil {
			return set(handle, nil)
		}
		if o.director == nil {
			o.director = lib.NewDirectorLog(o.listener)
		}
		return set(handle, o.director)
	})
}

// listener receives C's calls. Everything it refers to lives until the object is closed. So it knows the caller's
// function only during a call, and the object never.
type listener struct {
	log    func(json.RawMessage)
	thrown any // the value of log's panic; no panic may pass through C
}

// C calls Event on the thread of the call that is inside the object.
func (l *listener) Event(line string) {
	if l.log == nil || l.thrown != nil {
		return
	}
	defer func() { l.thrown = recover() }()
	l.log(json.RawMessage(line))
}
