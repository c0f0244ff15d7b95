package main

import (
	"fmt"
	"sync/atomic"
	"time"
)

// What fired of the timers that are far ahead, which must be nothing, and what they carried.
var fired, carried atomic.Int64

// payload is a small object of its own, which the callback reads.
func payload(number int64) func() {
	return func() {
		fired.Add(1)
		carried.Add(number)
	}
}

// pending are timers that pend while something else is measured. The runtime does not tell how many it has: stopping them
// one by one does.
type pending struct{ timers []*time.Timer }

func (p *pending) schedule(count int, delays *chance, further time.Duration) {
	for at := 0; at < count; at++ {
		p.timers = append(p.timers, time.AfterFunc(delays.farDelay()+further, payload(int64(at))))
	}
}

// check ends them.
func (p *pending) check() error {
	for at, timer := range p.timers {
		if !timer.Stop() {
			return fmt.Errorf("timer %d of %d was not pending", at, len(p.timers))
		}
	}
	return checkNoneFired()
}

func checkNoneFired() error {
	if count := fired.Load(); count != 0 {
		return fmt.Errorf("%d timers fired, though far ahead", count)
	}
	return nil
}
