#include "engine/profiling/profile_layers.hpp"

#include <algorithm>

#include "engine/execution/layer_faults.hpp"
#include "engine/profiling/measured_kind.hpp"
#include "models/family/registry.hpp"
#include "runtime/plugins/user_calls.hpp"

namespace troupe::engine {

namespace {

double total_ms(const scheduler::ProfilePoint& point) {
  double sum = 0;
  for (const auto* part : {&point.linear, &point.attention})
    sum += part->forward_ms + part->input_grad_ms + part->weight_grad_ms;
  return sum;
}

constexpr double kRunsOfPoint = 5;  // Roughly: one that warms up, three or more that count.

/// A kind that is being measured.
class Measurement {
 public:
  /// `watch` outlives it.
  Measurement(KindBench bench, std::string kind, const MediaInput& media, const QuietWatch& watch)
      : bench_(std::move(bench)),
        kind_(std::move(kind)),
        media_(media),
        parameters_(bench_.parameters()),
        watch_(watch) {}

  const std::string& kind() const { return kind_; }

  /// Begins the next size, the one in the place of so many tokens, or ends if it takes too long;
  /// two sizes are always measured.
  void begin(TokenCount tokens, double left_s, double point_s_max) {
    if (points_.size() >= 2) {
      // Twice the tokens take up to four times as long.
      const double run_s =
          4 * static_cast<double>(bench_.copies()) * total_ms(points_.back().point) / 1000;
      ended_ |= run_s > point_s_max || kRunsOfPoint * run_s > left_s;
    }
    if (!ended_) start(measured_size(media_, tokens));
  }

  /// Null where this size was not measured.
  const MeasuredPoint* at(std::size_t size) const {
    return size < points_.size() ? &points_[size] : nullptr;
  }

  void again(std::size_t size) {
    if (size < points_.size()) start(points_[size].point.tokens);
  }

  void forward() {
    if (takes_turns_) in_layer([&] { bench_.forward(); });
  }

  /// False once the size has been run often enough.
  bool backward() {
    if (!takes_turns_) return false;
    takes_turns_ = in_layer([&] { return bench_.backward(); });
    if (!takes_turns_) put(bench_.finish());
    return takes_turns_;
  }

  scheduler::LayerProfile profile() const {
    scheduler::LayerProfile made{kind_, {}, scheduler::CostOrigin::measured, parameters_, {}};
    for (const auto& measured : points_) made.points.push_back(measured.point);
    return made;
  }

  KindQuietness quietness(const QuietWatch& watch) const {
    std::vector<Reading> readings;
    for (const auto& measured : points_)
      readings.insert(readings.end(), measured.readings.begin(), measured.readings.end());
    auto made = watch.quietness(readings);
    made.kind = kind_;
    made.repeated = repeated_;
    return made;
  }

 private:
  /// A size that needs no turns is measured at once.
  void start(TokenCount tokens) {
    takes_turns_ = in_layer([&] { return bench_.begin(tokens); });
    if (takes_turns_) return;
    do {
      in_layer([&] { bench_.forward(); });
    } while (in_layer([&] { return bench_.backward(); }));
    put(bench_.finish());
  }

  /// A layer may be a user's: where it does not return, it is named.
  template <class Call>
  auto in_layer(Call&& call) const -> decltype(call()) {
    const plugins::CallingUser calling("a layer of kind '" + kind_ + "'");
    return call();
  }

  void put(MeasuredPoint measured) {
    repeated_ += measured.repeated;
    const auto before = std::find_if(points_.begin(), points_.end(), [&](const auto& point) {
      return point.point.tokens == measured.point.tokens;
    });
    if (before == points_.end()) return points_.push_back(std::move(measured));
    repeated_ += std::ssize(measured.readings);
    if (watch_.disturbance(measured.readings) < watch_.disturbance(before->readings))
      *before = std::move(measured);
  }

  KindBench bench_;
  std::string kind_;
  MediaInput media_;
  Bytes parameters_;
  const QuietWatch& watch_;
  std::vector<MeasuredPoint> points_;  // By size.
  std::int64_t repeated_ = 0;
  bool ended_ = false, takes_turns_ = false;
};

/// Runs the kinds that have begun a size as a stage would: all forward, then all backward. `kind`
/// is set to the one that runs.
void take_turns(std::vector<Measurement>& running, std::string& kind) {
  for (bool again = true; again;) {
    again = false;
    for (Measurement& measurement : running) {
      kind = measurement.kind();
      measurement.forward();
    }
    for (auto it = running.rbegin(); it != running.rend(); ++it) {
      kind = it->kind();
      again |= it->backward();
    }
  }
}

/// What the runs of a size took, all kinds together; 0 where nothing disturbed them.
double disturbed_wall_ms(const std::vector<Measurement>& running, std::size_t size,
                         const QuietWatch& watch) {
  double sum_ms = 0;
  bool disturbed = false;
  for (const Measurement& measurement : running)
    if (const auto* point = measurement.at(size)) {
      sum_ms += point->wall_ms;
      disturbed |= watch.quietness(point->readings).disturbed > 0;
    }
  return disturbed ? sum_ms : 0;
}

/// Measures disturbed sizes again while there is time: the disturbance may have passed. All kinds
/// of a size, as one alone would find warmer caches.
void measure_again(std::vector<Measurement>& running, std::size_t sizes, QuietWatch& watch,
                   std::string& kind) {
  for (bool any = true; any;) {
    any = false;
    for (std::size_t size = 0; size < sizes; ++size) {
      const double wall_ms = disturbed_wall_ms(running, size, watch);
      if (wall_ms <= 0 || !watch.pay(wall_ms)) continue;
      any = true;
      for (Measurement& measurement : running) {
        kind = measurement.kind();
        measurement.again(size);
      }
      take_turns(running, kind);
    }
  }
}

}  // namespace

std::vector<std::vector<std::string>> layer_kind_names(const JobSetup& setup) {
  std::vector<std::vector<std::string>> names;
  for (std::size_t m = 0; m < setup.model.modules.size(); ++m) {
    auto& list = names.emplace_back();
    for (const auto& work : models::module_works(config_of(setup, ModuleId{m}), setup.modules()))
      list.push_back(work.kind);
  }
  return names;
}

std::vector<LayerKind> layer_kinds(const JobSetup& setup) {
  std::vector<LayerKind> kinds;
  const auto names = layer_kind_names(setup);
  for (std::size_t m = 0; m < names.size(); ++m)
    for (std::size_t l = 0; l < names[m].size(); ++l)
      if (l == 0 || names[m][l] != names[m][l - 1])
        kinds.push_back({names[m][l], {ModuleId{m}, static_cast<std::int32_t>(l)}, 1});
      else
        ++kinds.back().layers;
  return kinds;
}

Result<std::vector<scheduler::LayerProfile>> profile_layers(const JobSetup& setup,
                                                            const LayerProfileOptions& options,
                                                            QuietWatch& watch) {
  std::vector<Measurement> running;
  std::string kind;
  std::size_t sizes = 0;
  try {
    for (const LayerKind& made : layer_kinds(setup)) {
      kind = made.name;
      auto bench = KindBench::create(setup, made, watch);
      if (!bench.ok()) return std::move(bench).error();
      running.emplace_back(std::move(bench).value(), kind,
                           models::media_input(config_of(setup, made.example.module)), watch);
    }
    const double begin_ms = watch.wall_ms() - watch.repeat_ms();
    for (TokenCount tokens = 16; tokens <= options.tokens_max; tokens *= 2, ++sizes) {
      for (Measurement& measurement : running) {
        kind = measurement.kind();
        const double spent_s = (watch.wall_ms() - watch.repeat_ms() - begin_ms) / 1000;
        if (options.on_progress)
          options.on_progress(kind, std::min(1.0, spent_s / options.budget_s));
        measurement.begin(tokens, options.budget_s - spent_s, options.point_s_max);
      }
      take_turns(running, kind);
    }
    measure_again(running, sizes, watch, kind);
  } catch (...) {
    return layer_fault(kind);
  }
  std::vector<scheduler::LayerProfile> profiles;
  for (const Measurement& measurement : running) {
    profiles.push_back(measurement.profile());
    watch.note(measurement.quietness(watch));
  }
  return profiles;
}

}  // namespace troupe::engine
