package main

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

const (
	unset    = math.MinInt64
	patience = 60 * time.Second
)

// arrivals are timers that fire, with the moment of each. Their callbacks run in parallel, each in a goroutine of its
// own.
type arrivals struct {
	deadlines []int64
	// fired has the moments by the timers' numbers. It is touched before the first timer is armed.
	fired []int64
	twice atomic.Int64
}

func newArrivals(count int) *arrivals {
	a := &arrivals{deadlines: make([]int64, count), fired: make([]int64, count)}
	for at := range a.fired {
		a.fired[at] = unset
	}
	return a
}

// callback has a plain store, as each timer has one callback, and a store of sync/atomic would be a locked instruction.
// A goroutine has no count of its own thread: a callback looks at its word first, which is set if its timer has fired
// before.
func (a *arrivals) callback(at int) func() {
	return func() {
		if a.fired[at] != unset {
			a.twice.Add(1)
		}
		a.fired[at] = now()
	}
}

// wait returns when all timers have fired, except those that excused allows to be missing.
func (a *arrivals) wait(excused func(at int) bool) error {
	giveUp := now() + int64(patience)
	for at := range a.fired {
		for !excused(at) && atomic.LoadInt64(&a.fired[at]) == unset {
			if now() > giveUp {
				return fmt.Errorf("timer %d did not fire", at)
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// lateness is that of the timers that fired, in the order of their numbers, once no more can fire.
func (a *arrivals) lateness() ([]int64, error) { return a.latenessFrom(0) }

// latenessFrom is the lateness of the timers that fired and whose number is at least first.
func (a *arrivals) latenessFrom(first int) ([]int64, error) {
	if count := a.twice.Load(); count != 0 {
		return nil, fmt.Errorf("%d timers fired twice", count)
	}
	lateness := make([]int64, 0, len(a.fired)-first)
	for at := first; at < len(a.fired); at++ {
		if moment := atomic.LoadInt64(&a.fired[at]); moment != unset {
			lateness = append(lateness, moment-a.deadlines[at])
		}
	}
	return lateness, nil
}

func early(lateness []int64) float64 {
	count := 0
	for _, late := range lateness {
		if late < 0 {
			count++
		}
	}
	return float64(count)
}
