//! The data of a shard's leader: the stations of the engines, and the shard's history.

use super::output::Output;
use super::resting::Resting;
use super::sleep::{Next, Wake};
use super::stall::StallDetector;
use super::station::Station;
use crate::base::tick::Timestamp;
use crate::lockfree::parker::Parker;
use core::ops::RangeInclusive;

/// The data that the lock of a shard guards. The thread that leads the shard holds this lock.
#[derive(Debug)]
pub(crate) struct Led {
    /// The stations (engines' parts of the shard) that do not rest. Each turn of the shard visits all of them.
    pub(super) stations: Vec<Station>,
    resting: Resting,
    pub(super) stalls: StallDetector,
    pub(super) trust: Trust,
}

impl Led {
    pub(super) fn new(stalls: StallDetector) -> Self {
        Self { stations: Vec::new(), resting: Resting::default(), stalls, trust: Trust::default() }
    }

    /// Takes out the stations that may rest, each with the end of its rest.
    pub(super) fn take_idle(&mut self, now: Timestamp) -> Vec<(Box<Station>, Option<Wake>)> {
        if !self.stations.iter_mut().any(Station::may_rest) {
            return Vec::new();
        }
        let idle = self.stations.extract_if(.., |station| station.may_rest()).map(Box::new);
        idle.map(|mut station| (station.wake(now), station)).map(|(wake, station)| (station, wake)).collect()
    }

    /// Keeps a station at rest until `wake`. A resting station takes part in no turn.
    pub(super) fn keep_resting(&mut self, station: Box<Station>, wake: Option<Wake>) {
        match station.call_number() {
            Some(number) => self.resting.put(number, station, wake),
            // A station without a call cannot rest.
            None => self.return_to_work(station),
        }
    }

    /// Ends the rest of the station whose call, its request for a turn, has this number. Does nothing if that station
    /// does not rest.
    pub(super) fn rouse(&mut self, number: usize) {
        if let Some(station) = self.resting.take(number) {
            self.return_to_work(station);
        }
    }

    /// Ends the rest of each station whose rest lasts until `now` or earlier.
    pub(super) fn rouse_due(&mut self, now: Timestamp) {
        while let Some(station) = self.resting.take_due(now) {
            self.return_to_work(station);
        }
    }

    /// Ends the rest of a station, so that it takes part in turns again.
    pub(super) fn return_to_work(&mut self, mut station: Box<Station>) {
        station.end_rest();
        self.stations.push(*station);
    }

    pub(super) fn take_all(&mut self) -> Vec<Station> {
        let mut stations = core::mem::take(&mut self.stations);
        stations.extend(self.resting.take_all().map(|station| *station));
        stations
    }

    /// Drops the stations of engines that were shut down.
    pub(super) fn drop_closed(&mut self) {
        if self.stations.iter().any(Station::is_closed) {
            self.stations.retain(|station| !station.is_closed());
        }
    }

    /// Takes out the stations of engines that were shut down.
    pub(super) fn take_closed(&mut self) -> Vec<Station> {
        self.stations.extract_if(.., |station| station.is_closed()).collect()
    }

    /// Runs a turn, a pass of the shard's loop. The turn visits each station that does not rest. Returns the next step
    /// of the shard.
    pub(super) fn turn(&mut self, now: Timestamp, out: &mut Output) -> Next {
        let turns = self.stations.iter_mut().map(|station| station.turn(now, out));
        turns.fold(Next::Sleep(self.resting.first_end()), Next::sooner)
    }

    /// Processes the tickets (requests to check timers) in the lanes (threads' queues to the shard) and in the wheels
    /// that are due at `now`. The program calls this for a shard without a thread.
    pub(crate) fn work(&mut self, now: Timestamp) {
        for station in &mut self.stations {
            // The lanes are drained only once. So a timer that a handler schedules for now fires in the next turn.
            station.drain();
            while station.work(now, &mut Output::default()) == Next::Turn {}
        }
    }

    /// Returns the moment at which the shard must turn next: the moment at which the next timer is due. Before that,
    /// many timers may have to move to a finer level of the timing wheel; then the moment is earlier. Returns `None` if
    /// no timer is pending.
    pub(crate) fn next_due(&mut self) -> Option<Timestamp> {
        self.stations.iter_mut().filter_map(Station::next_due).min()
    }

    /// Drains the lanes once more, after the shard has announced its sleep until `wake`. Returns the next step of the
    /// shard: see [`Station::look_again`].
    pub(super) fn look_again(&mut self, wake: Option<Wake>) -> Next {
        let looks = self.stations.iter_mut().map(|station| station.look_again(wake));
        looks.fold(Next::Sleep(wake), Next::sooner)
    }

    /// Moves the tickets in the lanes into the wheels of their engines.
    pub(super) fn drain(&mut self) {
        self.stations.iter_mut().for_each(|station| {
            station.drain();
        });
    }

    /// Returns the start of the first tick whose due timers were not all handed out.
    pub(super) fn due(&self) -> Timestamp {
        let at_rest = self.resting.first_end().map(|wake| wake.at);
        self.stations.iter().map(Station::due).chain(at_rest).min().unwrap_or(Timestamp::MAX)
    }

    /// Returns the parkers (the words that announce a sleep) of the stations that do not rest.
    pub(super) fn parkers(&self) -> impl Iterator<Item = &Parker> {
        self.stations.iter().map(|station| &station.shared.parker)
    }
}

/// Decides whether the leader, the thread that runs a shard, may run handlers itself. If a handler held a leader up,
/// other slow handlers are probably due soon. So the next batches (groups of due timers) go to the workers. The number
/// of such batches grows with each takeover.
#[derive(Debug, Default)]
pub(super) struct Trust {
    /// The number of batches that must still go to the workers. After that, the leader (the thread that runs the shard)
    /// may run a batch itself.
    withheld: u32,
    /// The number of batches that the last takeover of the shard has sent to the workers. Each takeover doubles the
    /// number.
    penalty: u32,
    /// The number of batches that leaders (threads that run the shard) have run after the last change of `penalty`.
    kept: u32,
}

impl Trust {
    const PENALTIES: RangeInclusive<u32> = if cfg!(tourbillon_loom) { 0..=0 } else { 16..=1_024 };
    /// The number of batches after which `Trust::penalty` is halved, if no takeover comes between.
    const FORGIVEN_AFTER: u32 = 256;

    /// Records that a handler held up the thread that leads the shard. The next batches go to the workers.
    pub(super) fn lose(&mut self) {
        self.penalty = (2 * self.penalty).clamp(*Self::PENALTIES.start(), *Self::PENALTIES.end());
        (self.withheld, self.kept) = (self.penalty, 0);
    }

    /// Returns whether the thread that leads the shard may itself run the next batch of due timers.
    pub(super) fn ask(&mut self) -> bool {
        if self.withheld > 0 {
            self.withheld -= 1;
            return false;
        }
        self.kept += 1;
        if self.kept == Self::FORGIVEN_AFTER {
            (self.penalty, self.kept) = (self.penalty / 2, 0);
        }
        true
    }
}

#[cfg(all(test, not(tourbillon_loom)))]
mod tests {
    use super::*;

    fn withheld(trust: &mut Trust) -> usize {
        (0..10_000).take_while(|_| !trust.ask()).count()
    }

    #[test]
    fn takeovers_in_a_row_cost_twice_as_much_each_time() {
        let mut trust = Trust::default();
        assert!(trust.ask());
        let costs: Vec<_> = (0..9)
            .map(|_| {
                trust.lose();
                withheld(&mut trust)
            })
            .collect();
        assert_eq!(costs, [16, 32, 64, 128, 256, 512, 1_024, 1_024, 1_024]);
    }

    #[test]
    fn trust_comes_back() {
        let mut trust = Trust::default();
        (0..4).for_each(|_| trust.lose());
        assert_eq!(withheld(&mut trust), 128);
        assert!((0..10 * Trust::FORGIVEN_AFTER).all(|_| trust.ask()));
        trust.lose();
        assert_eq!(withheld(&mut trust), 16);
    }
}
