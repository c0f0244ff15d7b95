#!/usr/bin/env bash
# Traces a turn of the workload `mixed` by the scheduler's own events, as root on Linux:
#
#     ./trace-mixed.sh [CONTESTANT] [OPERATIONS A SECOND]
#
# Prints the turn's figures and a row for each thread, in milliseconds: how often the thread ran; how long it was off its
# core, asleep or preempted; how long it waited for a core after it was woken (its *delay*); and how long it ran. The
# thread that plays the load has the program's name and never sleeps. Needs `perf` (linux-perf of Debian) and a built
# `tourbillon-compare`.
set -euo pipefail
contestant=${1:-engine, own workers}
rate=${2:-100000}
cd "$(dirname "$0")"
export LC_ALL=C
trace=$(mktemp)
messages=$(mktemp)
trap 'rm -f "$trace" "$messages"' EXIT

if ! perf sched record --mmap-pages 8192 --output "$trace" -- target/release/tourbillon-compare turn mixed \
    "$contestant" "{\"name\":\"traced\",\"rate\":$rate,\"time_ms\":3000}" 2>"$messages" | sed 's/,"series".*//'; then
    cat "$messages" >&2
    exit 1
fi
echo
# The quantiles are of all switches, or there are none.
if perf report --input "$trace" --stats 2>/dev/null | grep -i 'lost.*: *[1-9]'; then
    echo 'perf lost events: run it again' >&2
    exit 1
fi
printf '%-26s %6s  %-24s  %-32s  %s\n' thread runs 'off: p50, p99.9, max' 'delay: p50, p99, p99.9, max' 'run: mean, max'
perf sched timehist --input "$trace" 2>"$messages" |
    # time, cpu, name[thread/process], wait, delay, run
    awk 'match($0, /\[[0-9]+(\/[0-9]+)?\] +[0-9.]+ +[0-9.]+ +[0-9.]+ *$/) {
        thread = $0
        sub(/^ *[0-9.]+ \[[0-9]+\] +/, "", thread); sub(/ +[0-9.]+ +[0-9.]+ +[0-9.]+ *$/, "", thread)
        gsub(/ /, "_", thread)
        print thread, "off", $(NF - 2); print thread, "delay", $(NF - 1); print thread, "run", $NF
    }' | sort -k1,2 -k3,3n |
    awk 'function at(part) { place = int(n * part); return value[place < n ? place : n - 1] }
    function close_column() {
        if (column == "delay") delay = sprintf("%7.3f %7.3f %7.3f %7.3f", at(0.5), at(0.99), at(0.999), at(1))
        if (column == "off") off = sprintf("%7.3f %7.3f %7.3f", at(0.5), at(0.999), at(1))
        if (column == "run" && (n >= 500 || sum > 500)) printf "%-26s %6d %s %s %7.3f %7.3f\n", thread, n, off, delay, sum / n, at(1)
    }
    $1 != thread || $2 != column { close_column(); thread = $1; column = $2; n = sum = 0 }
    { value[n] = $3; n += 1; sum += $3 }
    END { close_column() }'
