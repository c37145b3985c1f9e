// One kind of layer, built and ready to be measured at any size.
//
// Runs the very layers that stages run. One thread at a time; what it builds lives as long as it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/profiling/profile_quiet.hpp"
#include "engine/setup/job_setup.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/cost/profile.hpp"

namespace troupe::engine {

/// A kind of layer and where an example of it stands in the model.
struct LayerKind {
  std::string name;  ///< `llm.block`, as `scheduler::layer_works` names it.
  LayerId example;
  std::int32_t layers = 1;  ///< Of this kind, one after another in the module.
};

/// A size of a kind, and how it was measured.
struct MeasuredPoint {
  scheduler::ProfilePoint point;
  std::vector<Reading> readings;  ///< Of the kept runs.
  std::int64_t repeated = 0;      ///< Runs in place of disturbed ones.
  double wall_ms = 0;             ///< That its runs took.
};

class KindBench {
 public:
  /// `setup` and `watch` outlive the bench. Errors: as `models::make_layer`.
  static Result<KindBench> create(const JobSetup& setup, const LayerKind& kind, QuietWatch& watch);

  KindBench(KindBench&&) noexcept;
  KindBench& operator=(KindBench&&) noexcept;
  ~KindBench();

  /// A size (a `measured_size`) is measured by `begin`, which runs it once to warm up, by
  /// `forward` and `backward` in turn until `backward` is false, and by `finish`: medians of the
  /// kept runs (`MeasuredRuns`) in ms; activation bytes are what a forward leaves allocated, output
  /// included.
  ///
  /// A stage runs other layers between two forwards of one, and between its forward and backward.
  /// So kinds take turns: `begin` is true where a run is so small that it would otherwise find the
  /// caches as the run before left them; such a kind wants others to run in between.
  ///
  /// Linear part: the layer on rows packed as sequences of at most 64 (1024 on a device that is no
  /// processor), and no larger than the square that an encoder takes pictures in, less the
  /// attention in it.
  /// Attention: the attention kernel alone on one sequence. The gradient of the input is timed with
  /// weight gradients deferred, those after it, as the engine splits a backward; a first layer,
  /// which has no rows before it, has all of its backward in the weight gradient. Sizes of the
  /// llm's head are trained tokens.
  ///
  /// With one operator thread times are processor times. Runs that other programs disturbed are
  /// repeated, as `MeasuredRuns::wants_more` has it.
  /// Throws c10::Error as LibTorch does, and what the layer throws.
  bool begin(TokenCount tokens);
  void forward();
  bool backward();
  MeasuredPoint finish();

  Bytes parameters();  ///< Of one layer.

  /// Layers that a run of the last size ran, one after another; times are those of one of them.
  std::size_t copies() const;

 private:
  class Bench;
  explicit KindBench(std::unique_ptr<Bench> bench);

  std::unique_ptr<Bench> bench_;
};

}  // namespace troupe::engine
