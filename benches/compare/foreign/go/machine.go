package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// roomyHeap is the limit of the heap in the timed workloads.
const roomyHeap = 8 << 30

// touchedHeap is more than a measured stretch allocates.
const touchedHeap = 2 << 30

// useRoomyHeap lets the collector wait for as much memory as the Java contestants get, instead of running each time the
// heap has doubled. Workloads that measure resident memory do not call it.
func useRoomyHeap() {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(roomyHeap)
	// Page faults are taken here, and not in the measurement.
	touched := make([]byte, touchedHeap)
	for at := 0; at < len(touched); at += os.Getpagesize() {
		touched[at] = 1
	}
	runtime.KeepAlive(touched)
	touched = nil
	runtime.GC()
}

var began = time.Now()

// now is the monotonic time in nanoseconds. Since reads one clock, where Now reads two.
func now() int64 { return int64(time.Since(began)) }

// settle collects the earlier garbage.
func settle(millis int64) {
	runtime.GC()
	time.Sleep(time.Duration(millis) * time.Millisecond)
}

// cpuNanos is the user and system time of all threads.
func cpuNanos() (int64, error) {
	var usage syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return usage.Utime.Nano() + usage.Stime.Nano(), err
}

// resident and residentPeak are in bytes.
func resident() (int64, error) {
	kib, err := statusNumber("/proc/self/status", "VmRSS")
	return kib << 10, err
}

func residentPeak() (int64, error) {
	kib, err := statusNumber("/proc/self/status", "VmHWM")
	return kib << 10, err
}

func availableMemory() (int64, error) {
	kib, err := statusNumber("/proc/meminfo", "MemAvailable")
	return kib << 10, err
}

// switches are the voluntary context switches of all threads but the first.
func switches() (int64, error) {
	first := strconv.Itoa(os.Getpid())
	return switchesOf(func(thread string) bool { return thread != first })
}

// allSwitches are the voluntary context switches of all threads.
func allSwitches() (int64, error) { return switchesOf(func(string) bool { return true }) }

func switchesOf(isCounted func(thread string) bool) (int64, error) {
	paths, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		return 0, err
	}
	sum := int64(0)
	for _, path := range paths {
		if !isCounted(filepath.Base(filepath.Dir(path))) {
			continue
		}
		count, err := statusNumber(path, "voluntary_ctxt_switches")
		if err != nil {
			return 0, err
		}
		sum += count
	}
	return sum, nil
}

func statusNumber(path, name string) (int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		if field == name {
			return strconv.ParseInt(strings.Fields(value)[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, name)
}
