// A stage around those of the family `faulty` that does wrong what was asked for last.

#pragma once

#include "tests/torch_catch.hpp"

#include <ATen/ops/ones.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/execution/device.hpp"
#include "engine/execution/stage_filter.hpp"
#include "engine/execution/stage_kinds.hpp"
#include "tests/engine/faulty_state.hpp"

namespace troupe::engine {

/// Of stages that are made from now on; empty: none.
inline std::string& stage_fault() {
  static std::string fault;
  return fault;
}

/// Where the first stage that keeps a place has its value.
inline at::Tensor& first_place() {
  static at::Tensor value;
  return value;
}

class FaultyStage final : public StageFilter {
 public:
  FaultyStage(std::unique_ptr<StageProgram> inner, std::string fault)
      : StageFilter(std::move(inner)), fault_(std::move(fault)) {
    const auto parameters = StageFilter::parameters();  // weight, bias, constant
    if (fault_ == "keeps a weight") place_ = parameters.at(0)->value.detach();
    if (fault_ == "keeps a constant") place_ = parameters.at(2)->value.detach();
    if (!first_place().defined()) first_place() = place_;
  }

  bool show_to(Viewer* viewer) override {
    throw_in("show_to");
    if (fault_ == "shows nothing") return false;
    if (viewer == nullptr && fault_ == "shows on") return true;
    if (viewer == nullptr || fault_ != "shows others") return StageFilter::show_to(viewer);
    others_ = std::make_unique<Others>(*viewer);
    return StageFilter::show_to(others_.get());
  }
  void abandon() override {
    throw_in("abandon");
    StageFilter::abandon();
  }
  void accept_rows(MessageId message, at::Tensor rows) override {
    throw_in("accept_rows");
    StageFilter::accept_rows(message, std::move(rows));
  }
  GroupState& state(GroupId group, LayerId layer) override {
    throw_in("state");
    auto& own = states_[{group, layer}];
    if (!own) own = std::make_unique<FaultyState>(StageFilter::state(group, layer), fault_);
    if (fault_ == "voids" && is_each_alone()) own->gradients().fill_(kNoNumber);
    return *own;
  }
  std::vector<models::Parameter*> parameters() override {
    throw_in("parameters");
    return StageFilter::parameters();
  }
  std::vector<PartLoss> losses() const override {
    throw_in("losses");
    return StageFilter::losses();
  }
  std::vector<PartAuxiliary> auxiliary() const override {
    throw_in("auxiliary");
    auto all = StageFilter::auxiliary();
    if (fault_ == "adds a void") {
      all.emplace_back().name = "void";
      if (is_each_alone()) all.back().value = kNoNumber;
    }
    return all;
  }
  Bytes activations() const override {
    throw_in("activations");
    return StageFilter::activations();
  }
  Status begin(const IterationPlan& plan, const data::DecodedSamples& samples) override {
    forwards_.clear();
    met_.clear();
    if (fault_ == "peeks") peeked_ = at::ones({1}, at::kDouble);
    was_owed_ = std::exchange(owed_, 0) > 0;
    iteration_ = &plan;
    return StageFilter::begin(plan, samples);
  }
  Status forward(PartKey part) override {
    last_ = part.microbatch;
    ++forwards_[last_];
    if (fault_ == "keeps its thread" && std::this_thread::get_id() != thread_)
      throw std::runtime_error("too far");
    if (fault_ == "keeps") kept_.push_back(at::ones({10}, at::kDouble));
    return StageFilter::forward(part);
  }
  Status backward_input(PartKey part) override {
    ++owed_;
    return StageFilter::backward_input(part);
  }
  Status backward_weight(PartKey part) override {
    --owed_;
    return StageFilter::backward_weight(part);
  }
  Result<at::Tensor> rows_for(MessageId message) override {
    auto rows = StageFilter::rows_for(message);
    if (!rows.ok()) return rows;
    if (fault_ == "doubles") return rows.value().mul(2);
    if (fault_ == "gives none") return at::Tensor{};
    if (fault_ == "gives columns") return rows.value().t().contiguous().t();
    if (fault_ == "gives floats") return rows.value().to(at::kFloat);
    if (fault_ == "gives a graph") return rows.value().clone().requires_grad_(true);
    // 1 where the place is the stage's own, or holds the same.
    if (place_.defined()) return rows.value().mul(first_place().sub(place_).sum().add(1));
    if (mistakes_slices(message) || meets_again(message)) return rows.value().mul(1.001);
    if (fault_ == "owes" && was_owed_) return rows.value().mul(1.001);
    if (fault_ == "by microbatch" && forwards_[last_] > 1) return rows.value().mul(1.001);
    return rows;
  }

  Result<Bytes> offload(PartKey part, Device& device) override {
    if (fault_ == "peeks") peeked_ = device.to_host(at::ones({1}, at::kDouble)).clone();
    return StageFilter::offload(part, device);
  }
  Result<at::Tensor> gradient_for(MessageId message) override {
    auto gradient = StageFilter::gradient_for(message);
    if (fault_ == "peeks" && gradient.ok()) return gradient.value().mul(peeked_);
    return gradient;
  }
  void accept_gradient(MessageId message, at::Tensor gradient) override {
    throw_in("accept_gradient");
    StageFilter::accept_gradient(message, fault_ == "doubles" ? gradient.mul(2) : gradient);
  }

 private:
  static constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

  /// Whether this iteration has a microbatch for each sample.
  bool is_each_alone() const {
    if (iteration_ == nullptr) return false;
    return std::ranges::all_of(iteration_->microbatches, [](const MicrobatchList& list) {
      return std::ranges::all_of(list, [](const Microbatch& microbatch) {
        return microbatch.parts.size() == 1 && microbatch.parts.front().samples.size() <= 1;
      });
    });
  }

  /// Where the fault is `throws in CALL`.
  void throw_in(const std::string& call) const {
    if (fault_ == "throws in " + call) throw std::runtime_error("too tired");
  }

  /// Whether what it does, which is right on a whole plan, finds something else in a slice.
  bool mistakes_slices(MessageId message) const {
    const auto& samples = iteration_->samples;
    if (fault_ == "by number")  // A sample's number is its position.
      for (std::size_t s = 0; s < samples.size(); ++s)
        if (std::cmp_not_equal(samples[s].position, s)) return true;
    if (fault_ == "by place")  // A message's id is its place.
      return message.index() >= iteration_->messages.size() ||
             iteration_->id_of(message.index()) != message;
    if (fault_ != "by count") return false;  // All samples of the batch are there.
    TokenCount trained = 0;
    for (const SampleShape& sample : samples) trained += sample.trained_tokens;
    return trained != iteration_->trained_tokens;
  }

  /// Whether what it does, which is right where each sample is one unit, meets one that it has met
  /// before: in the same part, or in another one.
  bool meets_again(MessageId message) {
    const bool in_one_part = fault_ == "by sample of a part";
    if (fault_ != "by sample" && !in_one_part) return false;
    bool is_met = false;
    for (const std::int32_t unit : iteration_->at(message).samples) {
      const auto [known, is_new] = met_.try_emplace(iteration_->sample(unit).position, last_);
      if (!is_new && (known->second == last_) == in_one_part) is_met = true;
    }
    return is_met;
  }

  /// Who looks sees other values.
  struct Others final : Viewer {
    explicit Others(Viewer& viewer) : to(viewer) {}
    bool wants(ModuleId module, observers::Kind kind) const override {
      return to.wants(module, kind);
    }
    void show(ModuleId module, observers::Kind kind, at::Tensor values) override {
      to.show(module, kind, values.mul(1.001));
    }
    Viewer& to;
  };

  const std::string fault_;
  const std::thread::id thread_ = std::this_thread::get_id();
  at::Tensor place_;   ///< Of its own value.
  at::Tensor peeked_;  ///< What host memory holds before the work that fills it has completed.
  std::unique_ptr<Others> others_;
  const IterationPlan* iteration_ = nullptr;
  MicrobatchId last_;
  std::map<MicrobatchId, int> forwards_;      ///< Of this iteration.
  std::map<std::int64_t, MicrobatchId> met_;  ///< Samples whose rows were asked for, and of which.
  int owed_ = 0;                              ///< Parts whose weight gradients are to come.
  bool was_owed_ = false;                     ///< When this iteration began.
  std::vector<at::Tensor> kept_;
  std::map<std::pair<GroupId, LayerId>, std::unique_ptr<FaultyState>> states_;
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
