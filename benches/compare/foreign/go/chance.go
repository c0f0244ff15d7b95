package main

import (
	"math/bits"
	"time"
)

// chance is SplitMix64.
type chance struct{ state uint64 }

func newChance(seed int64) *chance { return &chance{uint64(seed)} }

func (c *chance) next() uint64 {
	c.state += 0x9e3779b97f4a7c15
	mixed := c.state
	mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9
	mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb
	return mixed ^ (mixed >> 31)
}

// within returns a number from from up to, and not including, to.
func (c *chance) within(from, to int64) int64 {
	high, _ := bits.Mul64(c.next(), uint64(to-from))
	return from + int64(high)
}

// farDelay is the delay of a timer that is not due in a turn.
func (c *chance) farDelay() time.Duration {
	return time.Duration(c.within(int64(10*time.Second), int64(60*time.Second)))
}
