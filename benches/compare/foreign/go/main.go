// Command foreign measures the timers of Go's runtime: it runs one case of one workload and prints its figures.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
)

const (
	broken  = 1
	misused = 2
	cannot  = 3
)

type workload func(of testCase) (outcome, error)

var workloads = map[string]workload{
	"pair":    pair,
	"growth":  growth,
	"refresh": refresh,
	"rearm":   rearm,
	"expiry":  expiry,
	"burst":   burst,
	"busy":    busy,
	"memory":  memory,
	"storm":   storm,
	"idle":    idle,
	"mixed":   mixed,
}

func main() {
	os.Exit(run(os.Args[1:]))
}

func run(arguments []string) int {
	if len(arguments) != 4 || arguments[0] != "turn" {
		return failed(misused, errors.New("usage: turn WORKLOAD CONTESTANT CASE"))
	}
	work, found := workloads[arguments[1]]
	if !found {
		return failed(cannot, errors.New("no such workload here: "+arguments[1]))
	}
	if arguments[2] != "go" {
		return failed(cannot, errors.New("no such contestant here: "+arguments[2]))
	}
	var of testCase
	if err := json.Unmarshal([]byte(arguments[3]), &of); err != nil {
		return failed(misused, err)
	}
	if runtime.GOMAXPROCS(0) < 2 {
		runtime.GOMAXPROCS(2)
	}
	figures, err := work(of)
	if err != nil {
		return failed(broken, fmt.Errorf("broken: %w", err))
	}
	text, err := json.Marshal(figures)
	if err != nil {
		return failed(broken, err)
	}
	fmt.Println(string(text))
	return 0
}

func failed(status int, err error) int {
	fmt.Fprintln(os.Stderr, err)
	return status
}
