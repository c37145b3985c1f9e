// A stage around those of the family `faulty` that does wrong what was asked for last.

#pragma once

#include "tests/torch_catch.hpp"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "engine/execution/stage_filter.hpp"
#include "engine/execution/stage_kinds.hpp"

namespace troupe::engine {

/// Of stages that are made from now on; empty: none.
inline std::string& stage_fault() {
  static std::string fault;
  return fault;
}

class FaultyStage final : public StageFilter {
 public:
  FaultyStage(std::unique_ptr<StageProgram> inner, std::string fault)
      : StageFilter(std::move(inner)), fault_(std::move(fault)) {}

  Status begin(const IterationPlan& plan, const data::DecodedSamples& samples) override {
    forwards_.clear();
    return StageFilter::begin(plan, samples);
  }
  Status forward(PartKey part) override {
    last_ = part.microbatch;
    ++forwards_[last_];
    return StageFilter::forward(part);
  }
  Result<at::Tensor> rows_for(MessageId message) override {
    auto rows = StageFilter::rows_for(message);
    if (!rows.ok()) return rows;
    if (fault_ == "doubles") return rows.value().mul(2);
    if (fault_ == "by microbatch" && forwards_[last_] > 1) return rows.value().mul(1.001);
    return rows;
  }

  void accept_gradient(MessageId message, at::Tensor gradient) override {
    StageFilter::accept_gradient(message, fault_ == "doubles" ? gradient.mul(2) : gradient);
  }

 private:
  const std::string fault_;
  MicrobatchId last_;
  std::map<MicrobatchId, int> forwards_;  ///< Of this iteration.
};

/// Adds the kind `around-faulty`, once.
inline void register_faulty_stage() {
  for (const std::string& name : stage_kind_names())
    if (name == "around-faulty") return;
  StageKind kind{"around-faulty", {"faulty"}, {}, true};
  kind.make = [](const StageRequest& request) -> Result<std::unique_ptr<StageProgram>> {
    auto inner = built_in_stage(request);
    if (!inner.ok()) return inner;
    return std::unique_ptr<StageProgram>(
        std::make_unique<FaultyStage>(std::move(inner).value(), stage_fault()));
  };
  REQUIRE(register_stage(std::move(kind)).ok());
}

}  // namespace troupe::engine
