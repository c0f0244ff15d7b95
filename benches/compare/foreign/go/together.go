package main

import "sync"

// share is the number of operations of a goroutine, and their time.
type share struct {
	operations int
	nanos      int64
	err        error
}

// together runs goroutines: each prepares, calls start, which waits for the others, and measures. together returns
// nanoseconds for an operation and goroutine.
func together(count int, work func(at int, start func()) share) (float64, error) {
	shares := make([]share, count)
	var ready, done sync.WaitGroup
	ready.Add(count)
	done.Add(count)
	for at := range shares {
		go func(at int) {
			defer done.Done()
			var once sync.Once
			arrive := func() { once.Do(ready.Done) }
			// The other goroutines would wait for ever for one that failed before.
			defer arrive()
			shares[at] = work(at, func() {
				arrive()
				ready.Wait()
			})
		}(at)
	}
	done.Wait()
	operations, nanos := 0, int64(0)
	for _, one := range shares {
		if one.err != nil {
			return 0, one.err
		}
		operations += one.operations
		nanos += one.nanos
	}
	return float64(nanos) / float64(operations), nil
}
