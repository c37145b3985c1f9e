// One kind of layer, built and ready to be measured at any size.
//
// Runs the very layers that stages run. One thread at a time; what it builds lives as long as it.

#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "engine/job_setup.hpp"
#include "runtime/vocabulary/result.hpp"
#include "scheduler/profile.hpp"

namespace troupe::engine {

/// A kind of layer and where an example of it stands in the model.
struct LayerKind {
  std::string name;  ///< `llm.block`, as `scheduler::layer_works` names it.
  LayerId example;
};

/// The job's configuration of a module. REQUIRES: `module` is one of `setup.model`.
const ModuleConfig& config_of(const JobSetup& setup, ModuleId module);

class KindBench {
 public:
  /// `setup` outlives the bench. Errors: as `models::make_layer`.
  static Result<KindBench> create(const JobSetup& setup, const LayerKind& kind);

  KindBench(KindBench&&) noexcept;
  KindBench& operator=(KindBench&&) noexcept;
  ~KindBench();

  /// Forward and backward at a size (a power of two >= 16): medians of several runs after one that
  /// warms up, in ms; activation bytes are what a forward leaves allocated, output included.
  ///
  /// Linear part: the layer on rows packed as sequences of at most 64, less the attention in it.
  /// Attention: the attention kernel alone on one sequence. The gradient of the input is timed with
  /// weight gradients deferred, those after it, as the engine splits a backward; a first layer,
  /// which has no rows before it, has all of its backward in the weight gradient. Sizes of the
  /// llm's head are trained tokens.
  ///
  /// With one operator thread times are processor times: other programs do not lengthen them.
  /// Throws c10::Error as LibTorch does.
  scheduler::ProfilePoint point(TokenCount tokens);

  Bytes parameters();  ///< Of one layer.

  /// Layers that ran at the last point, one after another; its times are those of one of them.
  std::size_t copies() const;

 private:
  class Bench;
  explicit KindBench(std::unique_ptr<Bench> bench);

  std::unique_ptr<Bench> bench_;
};

}  // namespace troupe::engine
