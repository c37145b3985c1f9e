// What a stage shows to who looks (`StageProgram::show_to`), held against what it hands on.
//
// Single owner; calls code of the user's, whose exceptions are errors here.

#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/contract/stage_round.hpp"
#include "engine/execution/stage_filter.hpp"

namespace troupe::engine {

/// Looks at everything, and keeps it with the part that ran meanwhile.
class Views final : public Viewer {
 public:
  struct View {
    std::optional<PartKey> part;  ///< None: it was shown beside forwards and backwards.
    ModuleId module;
    observers::Kind kind = observers::Kind::rows;
    at::Tensor values;       ///< A copy: a stage may write over what it has shown.
    bool has_graph = false;  ///< Autograd followed it.
  };

  bool wants(ModuleId /*module*/, observers::Kind /*kind*/) const override { return true; }
  void show(ModuleId module, observers::Kind kind, at::Tensor values) override;

  /// Which part runs from now on.
  void runs(std::optional<PartKey> part) { part_ = part; }
  const std::vector<View>& all() const { return views_; }  ///< In the order in which they came.
  void clear() { views_.clear(); }

 private:
  std::optional<PartKey> part_;
  std::vector<View> views_;
};

/// A stage that tells views which of its parts runs.
class ViewedStage final : public StageFilter {
 public:
  /// `views` outlives this.
  ViewedStage(std::unique_ptr<StageProgram> inner, Views& views)
      : StageFilter(std::move(inner)), views_(views) {}

  Status forward(PartKey part) override;
  Status backward(PartKey part) override;

 private:
  Views& views_;
};

/// What is wrong with the views of a round of forwards and whole backwards, in words; empty:
/// nothing. Each message that begins where a module ends has its rows in one view of its part, and
/// its gradient where the module trains and one comes back; each loss of a part is in one of them
/// by sample, [samples]; nothing is shown beside forwards and backwards, and autograd follows none
/// of it. Values up to the order of a sum (1e-9). `inputs` and `outcome`: of the round.
std::string wrong_view(const ParallelPlan& plan, const IterationPlan& iteration, StageId id,
                       const StageRows& inputs, const StageOutcome& outcome, const Views& views);

/// `rows of 'vision'`.
std::string words_of(const ParallelPlan& plan, ModuleId module, observers::Kind kind);

}  // namespace troupe::engine
