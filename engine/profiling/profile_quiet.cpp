#include "engine/profiling/profile_quiet.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "engine/profiling/median.hpp"

namespace troupe::engine {

namespace {

double clock_ms(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

bool several_threads() { return at::get_num_threads() > 1; }

double total_ms(const scheduler::PartCost& cost) {
  return cost.forward_ms + cost.input_grad_ms + cost.weight_grad_ms;
}

/// Waits for a device that is no processor, whose work goes on when its operators have returned.
double waited_wall_ms(c10::Device place) {
  if (!place.is_cpu())
    c10::impl::getDeviceGuardImpl(place.type())->synchronizeDevice(place.index());
  return clock_ms(CLOCK_MONOTONIC);
}

double run_probe() {
  constexpr std::int64_t kSide = 128;  // Three matrices of 64 KiB.
  constexpr int kTimes = 4;            // The first one finds the caches cold.
  const c10::NoGradGuard no_grad;
  const at::Tensor left = at::ones({kSide, kSide}), right = at::ones({kSide, kSide});
  const clockid_t clock = several_threads() ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID;
  const auto now_ms = [clock] { return clock_ms(clock); };
  double fastest_ms = 0;
  for (int i = 0; i < kTimes; ++i) {
    const double begin = now_ms();
    at::matmul(left, right);
    const double took_ms = now_ms() - begin;
    fastest_ms = i == 0 ? took_ms : std::min(fastest_ms, took_ms);
  }
  return fastest_ms;
}

/// Products on a device, launched one behind the other and waited for once.
class DeviceProbe {
 public:
  explicit DeviceProbe(c10::Device place)
      : place_(place), left_(at::ones({kSide, kSide}, place)), right_(left_.clone()) {
    constexpr int kTried = 8;
    run(1);  // Loads what a product needs.
    const double one_ms = run(kTried) / kTried;
    times_ = static_cast<int>(std::clamp(kProbeMs / std::max(one_ms, 1e-6), 1.0, kTimesMax));
  }

  double operator()() const { return run(times_); }

 private:
  static constexpr std::int64_t kSide = 512;
  static constexpr double kProbeMs = 0.5, kTimesMax = 64;

  double run(int times) const {
    const c10::NoGradGuard no_grad;
    const double begin = waited_wall_ms(place_);
    for (int i = 0; i < times; ++i) at::matmul(left_, right_);
    return waited_wall_ms(place_) - begin;
  }

  c10::Device place_;
  at::Tensor left_, right_;
  int times_ = 1;
};

}  // namespace

MeasuringClocks machine_clocks(c10::Device place) {
  const auto wall_ms = [place] { return waited_wall_ms(place); };
  if (!place.is_cpu()) return {wall_ms, wall_ms, DeviceProbe(place), kDevicePaceMax};
  return {wall_ms, [] { return clock_ms(CLOCK_THREAD_CPUTIME_ID); }, run_probe};
}

QuietWatch::QuietWatch(MeasuringClocks clocks, double repeat_ms_max, double fastest_probe_ms)
    : clocks_(std::move(clocks)), left_ms_(repeat_ms_max), fastest_probe_ms_(fastest_probe_ms) {
  constexpr int kFirstProbes = 20;  // So that the first repetition has something beside it.
  for (int i = 0; i < kFirstProbes; ++i) probe();
}

double fastest_probe_ms(const std::string& device, int threads) {
  if (device != "cpu") return 0;
  const int before = at::get_num_threads();
  at::set_num_threads(threads);
  const double fastest_ms = QuietWatch(machine_clocks(), 0).fastest_probe_ms();
  at::set_num_threads(before);
  return fastest_ms;
}

double QuietWatch::probe() {
  const double took_ms = clocks_.probe_ms();
  if (took_ms > 0 && (fastest_probe_ms_ <= 0 || took_ms < fastest_probe_ms_))
    fastest_probe_ms_ = took_ms;
  return took_ms;
}

double QuietWatch::operator_ms() const {
  return several_threads() ? clocks_.wall_ms() : clocks_.processor_ms();
}

void QuietWatch::begin(Reading& reading) {
  reading = {};
  reading.probe_ms = probe();
  resume(reading);
}

// The times are kept as sums: a start is subtracted, an end is added. Processor time is read
// outside: reading the clocks never looks like being away.
void QuietWatch::resume(Reading& reading) const {
  reading.processor_ms -= clocks_.processor_ms();
  reading.wall_ms -= clocks_.wall_ms();
}

void QuietWatch::pause(Reading& reading) const {
  reading.wall_ms += clocks_.wall_ms();
  reading.processor_ms += clocks_.processor_ms();
}

void QuietWatch::end(Reading& reading) {
  pause(reading);
  reading.probe_ms = std::max(reading.probe_ms, probe());
}

bool QuietWatch::quiet(const Reading& reading) const {
  const double away_ms = reading.wall_ms - reading.processor_ms;
  const double share = several_threads() ? kAwayOfSeveralMax : kAwayMax;
  return away_ms <= std::max(kAwayMsMin, share * reading.wall_ms) &&
         reading.probe_ms <= clocks_.pace_max * fastest_probe_ms_;
}

double QuietWatch::disturbance(const Reading& reading) const {
  const double away = reading.processor_ms > 0 ? reading.wall_ms / reading.processor_ms : 1;
  const double pace = fastest_probe_ms_ > 0 ? reading.probe_ms / fastest_probe_ms_ : 1;
  return std::max(1.0, away) * std::max(1.0, pace);
}

double QuietWatch::disturbance(std::span<const Reading> readings) const {
  double sum = 0;
  for (const Reading& reading : readings) sum += disturbance(reading);
  return readings.empty() ? 1 : sum / static_cast<double>(readings.size());
}

KindQuietness QuietWatch::quietness(std::span<const Reading> readings) const {
  KindQuietness made;
  made.kept = std::ssize(readings);
  made.disturbed = std::count_if(readings.begin(), readings.end(),
                                 [&](const Reading& reading) { return !quiet(reading); });
  return made;
}

bool QuietWatch::pay(double wall_ms) {
  if (wall_ms > left_ms_) return false;
  left_ms_ -= wall_ms;
  paid_ms_ += wall_ms;
  return true;
}

void MeasuredRuns::add(const scheduler::PartCost& cost, const Reading& reading) {
  runs_.push_back({cost, reading});
}

bool MeasuredRuns::enough(std::size_t count, double spent_ms) const {
  return count >= limits_.most || (count >= limits_.least && spent_ms >= limits_.enough_ms);
}

bool MeasuredRuns::wants_more(QuietWatch& watch) {
  double spent_ms = 0, quiet_ms = 0;
  std::size_t quiet = 0;
  for (const Run& run : runs_) {
    spent_ms += total_ms(run.cost);
    if (!watch.quiet(run.reading)) continue;
    ++quiet;
    quiet_ms += total_ms(run.cost);
  }
  if (!enough(runs_.size(), spent_ms)) return true;
  if (enough(quiet, quiet_ms) || runs_.size() >= 2 * limits_.most) return false;
  if (!watch.pay(runs_.back().reading.wall_ms)) return false;
  ++repeated_;
  return true;
}

std::vector<const MeasuredRuns::Run*> MeasuredRuns::kept(const QuietWatch& watch) const {
  std::vector<const Run*> quiet, all;
  for (const Run& run : runs_) {
    all.push_back(&run);
    if (watch.quiet(run.reading)) quiet.push_back(&run);
  }
  const auto least = std::min(limits_.least, all.size());
  if (quiet.size() >= least) return quiet;
  std::stable_sort(all.begin(), all.end(), [&](const Run* a, const Run* b) {
    return watch.disturbance(a->reading) < watch.disturbance(b->reading);
  });
  all.resize(least);
  return all;
}

scheduler::PartCost MeasuredRuns::medians(const QuietWatch& watch) const {
  const auto runs = kept(watch);
  const auto median_of = [&](double scheduler::PartCost::*pass) {
    std::vector<double> values;
    for (const Run* run : runs) values.push_back(run->cost.*pass);
    return median(std::move(values));
  };
  return {median_of(&scheduler::PartCost::forward_ms),
          median_of(&scheduler::PartCost::input_grad_ms),
          median_of(&scheduler::PartCost::weight_grad_ms), 0};
}

std::vector<Reading> MeasuredRuns::kept_readings(const QuietWatch& watch) const {
  std::vector<Reading> readings;
  for (const Run* run : kept(watch)) readings.push_back(run->reading);
  return readings;
}

double MeasuredRuns::wall_ms() const {
  double sum = 0;
  for (const Run& run : runs_) sum += run.reading.wall_ms;
  return sum;
}

}  // namespace troupe::engine
