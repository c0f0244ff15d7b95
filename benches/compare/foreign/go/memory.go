package main

import (
	"errors"
	"runtime"
	"runtime/debug"
	"time"
)

const (
	megabyte  = 1e6
	stormLook = 1024
)

// residentAtRest is the resident memory without garbage and without pages that the runtime keeps in reserve.
func residentAtRest() (int64, error) {
	runtime.GC()
	debug.FreeOSMemory()
	return resident()
}

// fillAnHourAhead schedules timers and keeps no handles: the runtime has the timers.
func fillAnHourAhead(count int) {
	c := newChance(int64(count))
	for at := 0; at < count; at++ {
		delay := time.Hour + time.Duration(c.within(0, int64(time.Minute)))
		time.AfterFunc(delay, payload(int64(at)))
	}
}

func memory(of testCase) (outcome, error) {
	out := newOutcome()
	if !time.AfterFunc(time.Hour, payload(0)).Stop() {
		return out, errNotStopped
	}
	before, err := residentAtRest()
	if err != nil {
		return out, err
	}
	fillAnHourAhead(of.Timers)
	of.settle()
	after, err := residentAtRest()
	if err != nil {
		return out, err
	}
	out.Numbers["bytes"] = float64(after-before) / float64(of.Timers)
	return out, checkNoneFired()
}

// storm cancels timers long before they are due, and measures the memory that remains.
func storm(of testCase) (outcome, error) {
	out := newOutcome()
	if of.Operations < 1 {
		return out, errors.New("no operations")
	}
	before, err := residentAtRest()
	if err != nil {
		return out, err
	}
	until := now() + of.time()
	first := (of.Operations + 99) / 100
	done, err := stormPairs(first, until)
	if err != nil {
		return out, err
	}
	early, err := resident()
	if err != nil {
		return out, err
	}
	more, err := stormPairs(of.Operations-done, until)
	if err != nil {
		return out, err
	}
	after, err := resident()
	if err != nil {
		return out, err
	}
	peak, err := residentPeak()
	if err != nil {
		return out, err
	}
	out.Numbers["pairs"] = float64(done + more)
	out.Numbers["grown"] = float64(after-early) / megabyte
	out.Numbers["peak"] = float64(peak-before) / megabyte
	return out, checkNoneFired()
}

// stormPairs makes count pairs, or as many as the time allows, and returns their number.
func stormPairs(count int, until int64) (int, error) {
	done := 0
	for done < count && now() < until {
		to := done + stormLook
		if to > count {
			to = count
		}
		for ; done < to; done++ {
			if !time.AfterFunc(time.Hour, payload(int64(done))).Stop() {
				return done, errNotStopped
			}
		}
	}
	return done, nil
}

func idle(of testCase) (outcome, error) {
	// The first thread waits here and does nothing else, so that the figures of the other threads include all work of the
	// runtime.
	runtime.LockOSThread()
	out := newOutcome()
	fillAnHourAhead(of.Timers)
	of.settle()
	switched, err := switches()
	if err != nil {
		return out, err
	}
	cpu, err := cpuNanos()
	if err != nil {
		return out, err
	}
	time.Sleep(time.Duration(of.time()))
	cpuEnd, err := cpuNanos()
	if err != nil {
		return out, err
	}
	switchedEnd, err := switches()
	if err != nil {
		return out, err
	}
	out.Numbers["cpu_ms"] = float64(cpuEnd-cpu) / milliseconds
	out.Numbers["switches"] = float64(switchedEnd - switched)
	return out, checkNoneFired()
}
