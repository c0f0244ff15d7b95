package main

import (
	"errors"
	"fmt"
	"time"
)

const (
	pairDelays = 1024
	pairWarmUp = 1024
	// The number of pairs from one read of the clock to the next.
	pairLook = 256
	// A generous size for a timer, its callback and its place in the heap.
	bytesATimer = 300
	// Ten million timers take long to be scheduled and collected, and the first would be due. The delays of the pairs are
	// longer by as much, so that the order of deadlines is the same.
	growthFurther = time.Minute
)

var errNotStopped = errors.New("a timer just scheduled could not be stopped")

// pairs schedules a timer and cancels it at once, over and over.
type pairs struct {
	delays [pairDelays]time.Duration
	at     int
}

func newPairs(thread int, further time.Duration) *pairs {
	p := &pairs{}
	c := newChance(int64(thread))
	for at := range p.delays {
		p.delays[at] = c.farDelay() + further
	}
	return p
}

func (p *pairs) several(count int) error {
	for end := p.at + count; p.at < end; p.at++ {
		timer := time.AfterFunc(p.delays[p.at%pairDelays], payload(int64(p.at)))
		if !timer.Stop() {
			return errNotStopped
		}
	}
	return nil
}

func (p *pairs) during(nanos int64) share {
	done := 0
	start := now()
	for {
		if err := p.several(pairLook); err != nil {
			return share{err: err}
		}
		done += pairLook
		if taken := now() - start; taken >= nanos {
			return share{operations: done, nanos: taken}
		}
	}
}

// measurePairs returns nanoseconds for a pair and goroutine. Its delays are longer than those of the table by further.
func measurePairs(threads int, further time.Duration, nanos int64) (float64, error) {
	return together(threads, func(thread int, start func()) share {
		p := newPairs(thread, further)
		start()
		if err := p.several(pairWarmUp); err != nil {
			return share{err: err}
		}
		return p.during(nanos)
	})
}

func pair(of testCase) (outcome, error) {
	useRoomyHeap()
	out := newOutcome()
	var around pending
	around.schedule(of.Timers, newChance(int64(of.Timers)), 0)
	for _, threads := range of.Threads {
		of.settle()
		nanos, err := measurePairs(threads, 0, of.time())
		if err != nil {
			return out, err
		}
		out.Numbers[fmt.Sprint("t", threads)] = nanos
	}
	return out, around.check()
}

func growth(of testCase) (outcome, error) {
	useRoomyHeap()
	out := newOutcome()
	if len(of.Sizes) == 0 {
		return out, errors.New("no sizes")
	}
	var around pending
	delays := newChance(int64(of.Sizes[len(of.Sizes)-1]))
	for _, size := range of.Sizes {
		more := size - len(around.timers)
		available, err := availableMemory()
		if err != nil {
			return out, err
		}
		if int64(more)*bytesATimer > available {
			break
		}
		around.schedule(more, delays, growthFurther)
		of.settle()
		nanos, err := measurePairs(1, growthFurther, of.time())
		if err != nil {
			return out, err
		}
		out.Numbers[fmt.Sprint("p", size)] = nanos
	}
	return out, around.check()
}
