package main

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// refresh moves random timers of many pending ones.
func refresh(of testCase) (outcome, error) {
	useRoomyHeap()
	out := newOutcome()
	var around pending
	around.schedule(of.Timers, newChance(int64(of.Timers)), 0)

	type move struct {
		which int32
		delay time.Duration
	}
	moves := make([]move, of.Operations)
	c := newChance(of.Seed)
	for at := range moves {
		moves[at] = move{int32(c.within(0, int64(of.Timers))), c.farDelay()}
	}
	of.settle()

	start := now()
	for _, one := range moves {
		if !around.timers[one.which].Reset(one.delay) {
			return out, errors.New("a timer to be moved was not pending")
		}
	}
	out.Numbers["t1"] = float64(now()-start) / float64(len(moves))
	return out, around.check()
}

const (
	rearmTimeout = 5 * time.Second
	// The number of requests from one check whether another goroutine is done to the next.
	rearmLook = 1024
)

var errDisarmed = errors.New("a timer armed could not be disarmed")

// rearm arms and disarms the timer of a connection for each request.
func rearm(of testCase) (outcome, error) {
	useRoomyHeap()
	out := newOutcome()
	for _, threads := range of.Threads {
		var stop atomic.Bool
		of.settle()
		nanos, err := together(threads, func(thread int, start func()) share {
			connections := make([]*time.Timer, of.Timers)
			for at := range connections {
				// The first request of each connection, which makes the timer.
				connections[at] = time.AfterFunc(rearmTimeout, payload(int64(at)))
				if !connections[at].Stop() {
					return share{err: errDisarmed}
				}
			}
			order := make([]int32, of.Operations)
			c := newChance(int64(thread))
			for at := range order {
				order[at] = int32(c.within(0, int64(of.Timers)))
			}
			start()
			return requests(connections, order, &stop)
		})
		if err != nil {
			return out, err
		}
		out.Numbers[fmt.Sprint("t", threads)] = nanos
	}
	return out, checkNoneFired()
}

func requests(connections []*time.Timer, order []int32, stop *atomic.Bool) share {
	done := 0
	start := now()
	for done < len(order) && !stop.Load() {
		to := done + rearmLook
		if to > len(order) {
			to = len(order)
		}
		for _, which := range order[done:to] {
			timer := connections[which]
			timer.Reset(rearmTimeout)
			if !timer.Stop() {
				return share{err: errDisarmed}
			}
		}
		done = to
	}
	stop.Store(true)
	return share{operations: done, nanos: now() - start}
}
