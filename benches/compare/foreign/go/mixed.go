package main

import (
	"errors"
	"fmt"
	"sort"
	"time"
)

const operationsATimer = 1.95

// warmUp is the time from the start of a plan in which nothing is recorded, in nanoseconds.
const warmUp = 200e6

// operation schedules the timer of its number, or cancels that of the complement of its number.
type operation struct {
	time int64
	what int
}

// plan is the list of operations with their moments, counted from the start.
type plan struct {
	deadlines  []int64
	operations []operation
	// The numbers of operations and of timers in the warm-up.
	warmUpOperations, warmUpTimers int
}

func newPlan(rate, nanos int64) plan {
	nanos += warmUp
	count := int(float64(rate) * (float64(nanos) / 1e9) / operationsATimer)
	p := plan{deadlines: make([]int64, count), operations: make([]operation, 0, 2*count)}
	c := newChance(7)
	for timer := range p.deadlines {
		jitter := float64(c.within(0, 1<<20)) / (1 << 20)
		arrival := int64((float64(timer) + jitter) * float64(nanos) / float64(count))
		p.operations = append(p.operations, operation{arrival, timer})
		if c.within(0, 100) < 95 {
			p.operations = append(p.operations, operation{arrival + c.within(1e6, 40e6), ^timer})
		}
		p.deadlines[timer] = arrival + c.within(50e6, 200e6)
		if arrival < warmUp {
			p.warmUpTimers++
		}
	}
	sort.SliceStable(p.operations, func(one, other int) bool {
		return p.operations[one].time < p.operations[other].time
	})
	p.warmUpOperations = sort.Search(len(p.operations), func(at int) bool { return p.operations[at].time >= warmUp })
	return p
}

// drive is an open loop: operations come at their planned moments, whether or not the timers keep up.
type drive struct {
	arrivals  *arrivals
	timers    []*time.Timer
	cancelled []bool
	latency   []int64
	missed    int
	// The processor time at the end of the warm-up.
	cpu int64
}

func newDrive(p *plan) *drive {
	d := &drive{
		arrivals:  newArrivals(len(p.deadlines)),
		timers:    make([]*time.Timer, len(p.deadlines)),
		cancelled: make([]bool, len(p.deadlines)),
		latency:   make([]int64, len(p.operations)),
	}
	// The pages are touched before they are needed.
	for at := range d.latency {
		d.latency[at] = unset
	}
	return d
}

func (d *drive) run(p *plan) (err error) {
	start := now()
	for timer, deadline := range p.deadlines {
		d.arrivals.deadlines[timer] = start + deadline
	}
	for at, one := range p.operations {
		if at == p.warmUpOperations {
			if d.cpu, err = cpuNanos(); err != nil {
				return err
			}
		}
		planned := start + one.time
		moment := now()
		for moment < planned {
			moment = now()
		}
		d.operate(one.what, moment)
		d.latency[at] = now() - planned
	}
	return nil
}

func (d *drive) operate(what int, moment int64) {
	if what >= 0 {
		delay := d.arrivals.deadlines[what] - moment
		if delay < 0 {
			delay = 0
		}
		d.timers[what] = time.AfterFunc(time.Duration(delay), d.arrivals.callback(what))
	} else if d.timers[^what].Stop() {
		d.cancelled[^what] = true
	} else {
		d.missed++
	}
}

func mixed(of testCase) (outcome, error) {
	useRoomyHeap()
	out := newOutcome()
	p := newPlan(of.Rate, of.time())
	if len(p.deadlines) == 0 {
		return out, errors.New("no timers at this rate")
	}
	d := newDrive(&p)
	of.settle()
	if err := d.run(&p); err != nil {
		return out, err
	}
	if err := d.arrivals.wait(func(at int) bool { return d.cancelled[at] }); err != nil {
		return out, err
	}
	cpuEnd, err := cpuNanos()
	if err != nil {
		return out, err
	}
	// A timer that fires twice, or after its cancel, has the time of the longest delay to do so.
	time.Sleep(220 * time.Millisecond)
	lateness, err := d.arrivals.lateness()
	if err != nil {
		return out, err
	}
	if err := d.check(lateness); err != nil {
		return out, err
	}

	recorded, err := d.arrivals.latenessFrom(p.warmUpTimers)
	if err != nil {
		return out, err
	}
	operations, late := newQuantiles(d.latency[p.warmUpOperations:]), newQuantiles(recorded)
	for name, quantile := range map[string]float64{"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1} {
		out.Numbers["op_"+name] = operations.at(quantile, microseconds)
		out.Numbers["late_"+name] = late.at(quantile, milliseconds)
	}
	out.Numbers["missed"] = float64(d.missed)
	out.Numbers["cpu"] = float64(cpuEnd-d.cpu) / 1e9
	out.Numbers["behind"] = float64(d.latency[len(d.latency)-1]) / milliseconds
	out.Series["quantile"] = seriesQuantiles
	out.Series["op_us"] = operations.series(microseconds)
	out.Series["late_ms"] = late.series(milliseconds)
	return out, nil
}

func (d *drive) check(lateness []int64) error {
	cancelled := 0
	for _, one := range d.cancelled {
		if one {
			cancelled++
		}
	}
	if len(lateness)+cancelled != len(d.timers) {
		return fmt.Errorf("%d fired and %d cancelled of %d", len(lateness), cancelled, len(d.timers))
	}
	if len(lateness) == 0 {
		return errors.New("nothing fired")
	}
	if count := early(lateness); count != 0 {
		return fmt.Errorf("%v timers fired early", count)
	}
	return nil
}
