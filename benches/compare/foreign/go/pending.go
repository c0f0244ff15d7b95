package main

import (
	"fmt"
	"sync/atomic"
	"time"
)

// The number of timers far ahead that fired, which must be zero, and the sum of their payloads.
var fired, carried atomic.Int64

// payload is a small object of its own, which the callback reads.
func payload(number int64) func() {
	return func() {
		fired.Add(1)
		carried.Add(number)
	}
}

// pending are timers that are pending while another operation is measured. The runtime does not report their number;
// stopping them one by one does.
type pending struct{ timers []*time.Timer }

func (p *pending) schedule(count int, delays *chance, further time.Duration) {
	for at := 0; at < count; at++ {
		p.timers = append(p.timers, time.AfterFunc(delays.farDelay()+further, payload(int64(at))))
	}
}

// check stops all of them, and checks that each was pending.
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
