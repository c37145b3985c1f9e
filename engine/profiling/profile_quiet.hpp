// Whether the machine was quiet while something was measured, and which repetitions count.
//
// Two signs of another program: the thread did not run all the time (wall time beside its processor
// time), and the core was slow while it ran (a probe, a fixed piece of work, beside the fastest one
// of this machine). Single owner, one thread at a time.

#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "scheduler/cost/profile.hpp"

namespace troupe::engine {

/// What measurements read. Tests put functions of their own in its place.
struct MeasuringClocks {
  std::function<double()> wall_ms;       ///< Of an unspecified start.
  std::function<double()> processor_ms;  ///< The same, of the calling thread.
  /// Does a fixed piece of work; milliseconds that it took, on the clock of the operators.
  std::function<double()> probe_ms;
  /// A probe that takes more than the fastest one times this was slowed by something else.
  double pace_max = 1.15;
};

/// An accelerator lowers its own clock by as much and more while it works hard, and runs so when it
/// trains: what is slower than this has to share it.
inline constexpr double kDevicePaceMax = 1.7;

/// The clocks of this machine. The probe is a product of two matrices that stay in a core's own
/// caches, a few times; the fastest counts. Cost of a probe: about half a millisecond.
/// Of a device that is no processor: it is waited for before the wall clock is read, which both
/// times are then, and the probe runs there: as many products, one behind the other, as take half a
/// millisecond, since a single one would show little but how long a launch and a wait take.
MeasuringClocks machine_clocks(c10::Device place = c10::kCPU);

/// What the fastest of twenty probes takes here, with so many operator threads: over the one of a
/// profile (`StoredProfile::probe_ms`), how many times as long a processor takes for the same work.
/// 0 of a `device` of jobs that is no processor: its probes take as long everywhere. Cost: some ten
/// milliseconds.
double fastest_probe_ms(const std::string& device, int threads);

/// Share of a repetition's wall time that its thread may be away. With several operator threads it
/// waits for the others at the end of each operator, and may be away longer.
inline constexpr double kAwayMax = 0.05, kAwayOfSeveralMax = 0.25;
/// Below it the clocks themselves, and the system's own work, show.
inline constexpr double kAwayMsMin = 0.02;
/// A profile of which more than this share was disturbed was taken on a busy machine.
inline constexpr double kDisturbedShareMax = 0.2;

/// What a repetition met.
struct Reading {
  double wall_ms = 0, processor_ms = 0;
  double probe_ms = 0;  ///< The slower of the probes before and behind it.
};

/// How undisturbed the numbers of a kind are.
struct KindQuietness {
  std::string kind;
  scheduler::Parallelism parallelism;
  std::int64_t kept = 0;       ///< Repetitions that the numbers are made of.
  std::int64_t disturbed = 0;  ///< Those of them that something disturbed.
  std::int64_t repeated = 0;   ///< Repetitions in place of disturbed ones.

  double disturbed_share() const {
    return kept > 0 ? static_cast<double>(disturbed) / static_cast<double>(kept) : 0;
  }

  friend bool operator==(const KindQuietness&, const KindQuietness&) = default;
};

/// Reads the clocks, knows how fast the machine can be, and pays for repetitions.
class QuietWatch {
 public:
  /// `fastest_probe_ms`: of an earlier measurement on this machine; 0: unknown. `repeat_ms_max`:
  /// wall time for repetitions in place of disturbed ones.
  QuietWatch(MeasuringClocks clocks, double repeat_ms_max, double fastest_probe_ms = 0);

  double wall_ms() const { return clocks_.wall_ms(); }

  /// Milliseconds of an unspecified start. With one operator thread all work is this thread's, and
  /// its processor time leaves out what other programs take; several threads need the wall clock.
  double operator_ms() const;

  /// Probes, then starts both clocks. `pause` stops them, `resume` starts them again where other
  /// things ran in between; `end` stops them, if they run, and probes again.
  void begin(Reading& reading);
  void pause(Reading& reading) const;
  void resume(Reading& reading) const;
  void end(Reading& reading);

  bool quiet(const Reading& reading) const;

  /// How many times longer than on a quiet machine it may have taken, by both signs; about 1 where
  /// quiet.
  double disturbance(const Reading& reading) const;

  /// Of all these: their mean disturbance, and how many of them something disturbed, as far as is
  /// known by now (a faster probe shows that earlier ones were slow). No names, nothing repeated.
  double disturbance(std::span<const Reading> readings) const;
  KindQuietness quietness(std::span<const Reading> readings) const;

  /// Takes the time of a repetition from what is left for them; false if it is not there.
  bool pay(double wall_ms);
  double left_ms() const { return left_ms_; }
  double repeat_ms() const { return paid_ms_; }  ///< Paid so far.

  double fastest_probe_ms() const { return fastest_probe_ms_; }

  void note(KindQuietness kind) { kinds_.push_back(std::move(kind)); }
  const std::vector<KindQuietness>& kinds() const { return kinds_; }

 private:
  double probe();

  MeasuringClocks clocks_;
  double left_ms_, paid_ms_ = 0;
  double fastest_probe_ms_;
  std::vector<KindQuietness> kinds_;
};

/// What repeated runs took, pass by pass, and what each of them met.
class MeasuredRuns {
 public:
  /// At least `least` runs; then until `most` of them or `enough_ms` together.
  struct Limits {
    std::size_t least = 3, most = 7;
    double enough_ms = 40;
  };

  explicit MeasuredRuns(Limits limits) : limits_(limits) {}

  void add(const scheduler::PartCost& cost, const Reading& reading);
  std::size_t count() const { return runs_.size(); }

  /// Whether another run is wanted: as many as the limits say, and, while the watch pays, as many
  /// again in place of disturbed ones. On a quiet machine disturbance costs nothing.
  bool wants_more(QuietWatch& watch);

  /// Medians of each pass over the kept runs (the upper one of two), no bytes. Kept are the quiet
  /// ones; where they are fewer than `least`, that many of the least disturbed.
  /// REQUIRES: a run was added.
  scheduler::PartCost medians(const QuietWatch& watch) const;

  std::vector<Reading> kept_readings(const QuietWatch& watch) const;
  std::int64_t repeated() const { return repeated_; }  ///< Runs in place of disturbed ones.
  double wall_ms() const;                              ///< Of all runs.

 private:
  struct Run {
    scheduler::PartCost cost;
    Reading reading;
  };

  bool enough(std::size_t count, double spent_ms) const;
  std::vector<const Run*> kept(const QuietWatch& watch) const;

  Limits limits_;
  std::vector<Run> runs_;
  std::int64_t repeated_ = 0;
};

}  // namespace troupe::engine
