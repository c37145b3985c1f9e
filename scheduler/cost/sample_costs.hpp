// What samples cost in the layers of a model: whatever depends on a sample alone is summed once, so
// that any number of degrees, plans and parts can be asked for, and once for all samples that are
// alike: of the same lengths, media and markers.
//
// Pure. Helper of predicted_costs.cpp and of the layout search, which asks for many plans of the
// same samples.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/vocabulary/parallel_plan.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/sample_shape.hpp"
#include "scheduler/cost/cost_model.hpp"

namespace troupe::scheduler {

/// One value per pass: milliseconds, and the bytes that wait for a backward.
struct PassCosts {
  double forward = 0;
  double input_grad = 0;
  double weight_grad = 0;
  double activations = 0;

  PassCosts& operator+=(const PassCosts& other);
};

/// Layers of one kind in one run, by which gradients they need.
struct AlikeLayers {
  std::size_t term = 0;
  ModuleId module;
  std::size_t sums = 0;  ///< Which of the module's degrees.
  double count = 0;
  double weight_grads = 0;        ///< Layers that train.
  double input_grads = 0;         ///< Layers with something trainable before them in the module.
  double input_grads_passed = 0;  ///< Layers that need one only if the module's input does.
  double kept = 0;                ///< Layers whose activations wait for a backward in any case.
  double kept_passed = 0;         ///< Only if the module's input needs a gradient.

  friend bool operator==(const AlikeLayers&, const AlikeLayers&) = default;
};

/// Answers for given degrees. Immutable, hence thread-safe; copies share what was summed.
class SampleCosts {
 public:
  /// The same sums, where sample i is what was sample `order[i]`.
  /// REQUIRES: indices of samples that were given.
  SampleCosts in_order(std::vector<std::int32_t> order) const;

  /// Appends the layers of `run` to `list`; each entry costs O(samples of a part) to ask for.
  /// REQUIRES: costs of the module at these degrees were asked for.
  void add(const LayerRun& run, const Parallelism& degrees, std::vector<AlikeLayers>& list) const;

  /// Cost of these layers for the samples of a part, packed.
  PassCosts part(const std::vector<AlikeLayers>& list, std::span<const std::int32_t> samples) const;

  /// Cost of these layers for one sample without the constants of a launch; the bytes that it keeps
  /// are left out.
  PassCosts sample(const std::vector<AlikeLayers>& list, std::size_t sample) const;

  /// Number of a sample's shape, below `shape_count`: samples of one shape cost the same in all
  /// layers.
  std::size_t shape_of(std::size_t sample) const;
  std::size_t shape_count() const;

 private:
  friend class SampleSums;
  struct ModuleSums;
  /// Per module and shape: something before the module trains and carries rows of such samples.
  using GradientIn = std::vector<std::vector<bool>>;

  struct AtDegrees {
    Parallelism degrees;
    std::shared_ptr<const ModuleSums> sums;
  };
  std::vector<std::vector<AtDegrees>> modules_;  ///< Per module.
  std::shared_ptr<const GradientIn> gradient_in_;
  std::shared_ptr<const std::vector<std::size_t>> shape_of_;  ///< Per sample, as they were given.
  std::vector<std::int32_t> order_;                           ///< Empty: as they were given.
};

/// Sums over samples, made when degrees are first asked for and then kept. Single owner.
class SampleSums {
 public:
  /// Copies a sample of each shape; `model` outlives this. Cost: O(samples).
  SampleSums(const CostModel& model, std::span<const SampleShape> samples);

  /// Costs at these degrees per module; missing ones: tp 1, cp 1. What it returns may outlive this.
  /// Cost: O(shapes x kinds of layer) for degrees of a module that are new.
  ///
  /// Errors:
  /// - not_found: no profile at one of `parallelisms`.
  Result<SampleCosts> at(std::span<const Parallelism> parallelisms);
  /// Costs at the degrees of all stages of a layout. Errors: as `at`.
  Result<SampleCosts> of(const ParallelPlan& plan);

  std::size_t size() const { return shape_of_->size(); }  ///< Samples.
  const CostModel& model() const { return model_; }

 private:
  using ModuleSums = SampleCosts::ModuleSums;

  Result<std::shared_ptr<const ModuleSums>> sums_of(ModuleId module, Parallelism degrees);
  Status add(ModuleId module, Parallelism degrees, SampleCosts& costs);

  const CostModel& model_;
  std::vector<SampleShape> shapes_;  ///< Of the samples of each the first one.
  std::shared_ptr<const std::vector<std::size_t>> shape_of_;
  std::shared_ptr<const SampleCosts::GradientIn> gradient_in_;
  std::map<std::pair<ModuleId, Parallelism>, std::shared_ptr<const ModuleSums>> known_;
};

}  // namespace troupe::scheduler
