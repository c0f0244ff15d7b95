package main

import (
	"fmt"
	"sync/atomic"
	"time"
)

const (
	parts        = 100
	milliseconds = float64(time.Millisecond)
	microseconds = float64(time.Microsecond)
)

// window is a run of timers that are all inserted before the first is due.
type window struct {
	lateness    []int64
	insertNanos float64
	cpuSeconds  float64
	// wakes are the voluntary context switches from the last insert to the last callback, for 1,000 timers.
	wakes float64
}

// runWindow takes the deadlines as offsets from the start of the window, which is lead after the first insert.
func runWindow(offsets []int64, lead int64) (window, error) {
	a := newArrivals(len(offsets))
	start := now()
	first, last := int64(1<<62), int64(0)
	for at, offset := range offsets {
		deadline := start + lead + offset
		a.deadlines[at] = deadline
		if deadline < first {
			first = deadline
		}
		if deadline > last {
			last = deadline
		}
	}
	begin := now()
	for at, deadline := range a.deadlines {
		time.AfterFunc(time.Duration(deadline-now()), a.callback(at))
	}
	end := now()
	switched, err := allSwitches()
	if err != nil {
		return window{}, err
	}
	cpu, err := cpuNanos()
	if err != nil {
		return window{}, err
	}
	if end >= first {
		return window{}, fmt.Errorf("inserted %d ns after the first was due", end-first)
	}
	time.Sleep(time.Duration(last - now()))
	if err := a.wait(func(int) bool { return false }); err != nil {
		return window{}, err
	}
	cpuEnd, err := cpuNanos()
	if err != nil {
		return window{}, err
	}
	switchedEnd, err := allSwitches()
	if err != nil {
		return window{}, err
	}
	// A timer that fires twice has some time to do so.
	time.Sleep(20 * time.Millisecond)
	lateness, err := a.lateness()
	return window{
		lateness:    lateness,
		insertNanos: float64(end-begin) / float64(len(offsets)),
		cpuSeconds:  float64(cpuEnd-cpu) / 1e9,
		wakes:       float64(switchedEnd-switched) * 1e3 / float64(len(offsets)),
	}, err
}

func (w *window) figures() (outcome, quantiles) {
	out := newOutcome()
	all := newQuantiles(w.lateness)
	out.Numbers["early"] = early(w.lateness)
	out.Numbers["p50"] = all.at(0.5, milliseconds)
	out.Numbers["cpu"] = w.cpuSeconds
	out.Numbers["insert"] = w.insertNanos
	return out, all
}

// scattered is offsets at random moments of the window.
func scattered(of testCase) []int64 {
	c := newChance(1)
	offsets := make([]int64, of.Timers)
	for at := range offsets {
		offsets[at] = c.within(0, of.time())
	}
	return offsets
}

func (w *window) tail() (outcome, quantiles) {
	out, all := w.figures()
	out.Numbers["p99"] = all.at(0.99, milliseconds)
	out.Numbers["p999"] = all.at(0.999, milliseconds)
	out.Numbers["max"] = all.at(1, milliseconds)
	return out, all
}

func expiry(of testCase) (outcome, error) {
	useRoomyHeap()
	offsets := scattered(of)
	of.settle()
	w, err := runWindow(offsets, of.lead())
	if err != nil {
		return outcome{}, err
	}
	out, all := w.tail()
	out.Numbers["wakes"] = w.wakes
	byPart(&out, offsets, w.lateness, of.time())
	out.Series["quantile"] = seriesQuantiles
	out.Series["lateness"] = all.series(milliseconds)
	return out, nil
}

// busy has goroutines that compute beside the timers.
func busy(of testCase) (outcome, error) {
	useRoomyHeap()
	offsets := scattered(of)
	of.settle()
	var done atomic.Bool
	defer done.Store(true)
	for i := 0; i < of.Threads[0]; i++ {
		go func() {
			for !done.Load() {
			}
		}()
	}
	w, err := runWindow(offsets, of.lead())
	if err != nil {
		return outcome{}, err
	}
	out, _ := w.tail()
	return out, nil
}

// byPart leaves out the parts without timers.
func byPart(out *outcome, offsets, lateness []int64, nanos int64) {
	samples := make([][]int64, parts)
	for at, offset := range offsets {
		part := offset * parts / nanos
		samples[part] = append(samples[part], lateness[at])
	}
	add := func(name string, value float64) { out.Series[name] = append(out.Series[name], value) }
	for part, sample := range samples {
		if len(sample) == 0 {
			continue
		}
		q := newQuantiles(sample)
		add("due_ms", float64(part)*float64(nanos)/parts/milliseconds)
		add("part_p50", q.at(0.5, milliseconds))
		add("part_p99", q.at(0.99, milliseconds))
		add("part_max", q.at(1, milliseconds))
	}
}

func burst(of testCase) (outcome, error) {
	useRoomyHeap()
	of.settle()
	w, err := runWindow(make([]int64, of.Timers), of.lead())
	if err != nil {
		return outcome{}, err
	}
	out, all := w.figures()
	out.Numbers["last"] = all.at(1, milliseconds)
	return out, nil
}
