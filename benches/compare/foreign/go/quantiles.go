package main

import (
	"math"
	"sort"
)

// quantiles are the quantiles of a sample by nearest rank: the smallest value that at least this part of all values
// does not exceed.
type quantiles struct{ sorted []int64 }

func newQuantiles(sample []int64) quantiles {
	sorted := append([]int64(nil), sample...)
	sort.Slice(sorted, func(one, other int) bool { return sorted[one] < sorted[other] })
	return quantiles{sorted}
}

// at returns a quantile in units of so many nanoseconds.
func (q quantiles) at(quantile, unit float64) float64 {
	rank := int(math.Ceil(quantile * float64(len(q.sorted))))
	if rank < 1 {
		rank = 1
	}
	return float64(q.sorted[rank-1]) / unit
}

// seriesQuantiles are the quantiles in the series of a distribution.
var seriesQuantiles = []float64{0.5, 0.9, 0.99, 0.999, 0.9999, 1}

func (q quantiles) series(unit float64) []float64 {
	values := make([]float64, len(seriesQuantiles))
	for at, quantile := range seriesQuantiles {
		values[at] = q.at(quantile, unit)
	}
	return values
}
