// The search behind `make_templates`: tables over (GPU position, layer) that serve every pipeline
// size at once. Internal to scheduler/.
//
// A stage never crosses a node, and nodes are alike, so what can happen after GPU position p
// depends on p modulo the GPUs per node and on the layers that are left. Tables:
// - ahead(p, l): least slowest stage that covers layers [0, l) with the first p GPUs;
// - behind(r, l): the same for layers [l, L) with the last r GPUs of any pipeline;
// - work(r, l): least sum of stage times for that end, whatever its slowest stage;
// - value(r, l): a lower bound on sum + (Nb - 1) x slowest for that end.
// ahead(nG, L) is the least bottleneck of an n-node pipeline. For a given bottleneck the least sum
// is a shortest path over the states that `ahead` and `behind` allow and that `work` and `value` do
// not rule out against the best known value. Only bottlenecks below (best - sum) / (Nb - 1) can
// still win, where `sum` belongs to the path just found for a larger one; the bound falls with each
// path until it meets the least bottleneck, which proves the optimum.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scheduler/recovery/pipeline_templates.hpp"

namespace troupe::scheduler {

class TemplateSearch {
 public:
  /// REQUIRES: values were checked by `make_templates`.
  TemplateSearch(std::span<const TemplateLayer> layers, std::int32_t gpus_per_node,
                 Bytes device_memory);

  /// Extends the tables to pipelines of `node_count` nodes. True if such a pipeline exists.
  bool extend(std::int32_t node_count);

  /// Best stages for a size, empty if there are none. REQUIRES: `extend(node_count)` was called.
  std::vector<TemplateStage> best(std::int32_t node_count, std::int64_t microbatches);

  /// Stage time in milliseconds, summed layer by layer from the request.
  double stage_ms(const TemplateStage& stage) const;

 private:
  /// All k that some layer run may use, with prefix sums of layer times in quanta. Whole numbers
  /// below 2^53, so that sums and differences are exact and equal layers compare equal.
  struct Width {
    std::int32_t gpus = 1;
    std::vector<double> prefix;
    std::vector<std::int32_t> memory_end;    ///< Per first layer: end of the longest stage.
    std::vector<std::int32_t> memory_begin;  ///< Per end: first layer of the longest stage.
  };
  struct Step {
    std::int32_t begin = -1;
    std::int32_t width = -1;
  };
  struct Stage {
    double cost = 0;
    std::int32_t end = -1;
    std::int32_t width = -1;
  };
  struct Path {
    double sum = 0;  ///< Infinite if there is none.
    double max = 0;
  };

  Width make_width(std::int32_t gpus, double quantum, Bytes device_memory) const;
  void add_ahead_row(std::int32_t position);
  void add_behind_row(std::int32_t remaining);
  void add_value_row(std::int32_t remaining);
  void set_repeats(double repeats, std::int32_t gpu_count);
  Path least_sum_path(std::int32_t node_count);
  Stage least_sum_stage(std::int32_t remaining, std::int32_t begin) const;
  Path evaluate(std::int32_t node_count, double bottleneck, double value_limit);
  void relax_from(std::int32_t position, std::int32_t gpu_count, double bottleneck,
                  double value_limit);
  std::vector<TemplateStage> stages_of(std::int32_t node_count) const;

  std::size_t at(std::int32_t row, std::int32_t layer) const {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(layer_count_ + 1) +
           static_cast<std::size_t>(layer);
  }

  std::span<const TemplateLayer> layers_;
  std::int32_t layer_count_;
  std::int32_t gpus_per_node_;
  std::vector<Width> widths_;
  std::int32_t rows_ = 1;  // Rows of the tables: positions 0 .. rows_ - 1.
  std::vector<double> ahead_, behind_, work_;
  std::vector<double> value_;  // Depends on `repeats_`.
  std::int32_t value_rows_ = 0;
  std::vector<double> sum_;  // Of the latest path computation, with `steps_`.
  std::vector<Step> steps_;
  double least_max_ = 0;  // Of the size that is being planned.
  double repeats_ = -1;   // Nb - 1.
};

}  // namespace troupe::scheduler
