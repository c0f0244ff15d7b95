package main

import "time"

// testCase is the task of a turn. Fields that a workload does not use are absent.
type testCase struct {
	Timers     int   `json:"timers"`
	Threads    []int `json:"threads"`
	Sizes      []int `json:"sizes"`
	TimeMs     int64 `json:"time_ms"`
	Operations int   `json:"operations"`
	Rate       int64 `json:"rate"`
	LeadMs     int64 `json:"lead_ms"`
	SettleMs   int64 `json:"settle_ms"`
	Seed       int64 `json:"seed"`
}

// time is the time of the measurement in nanoseconds, and so is lead.
func (of *testCase) time() int64 { return of.TimeMs * int64(time.Millisecond) }

func (of *testCase) lead() int64 { return of.LeadMs * int64(time.Millisecond) }

func (of *testCase) settle() { settle(of.SettleMs) }

// outcome is the figures of a turn.
type outcome struct {
	Numbers map[string]float64   `json:"numbers"`
	Series  map[string][]float64 `json:"series"`
}

func newOutcome() outcome {
	return outcome{Numbers: map[string]float64{}, Series: map[string][]float64{}}
}
