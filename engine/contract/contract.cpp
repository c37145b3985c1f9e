#include "engine/contract/contract.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "engine/contract/stage_bench.hpp"
#include "engine/state/memory_count.hpp"
#include "runtime/observe/plan_words.hpp"

namespace troupe::engine {

namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

/// Holds one stage against its promises.
class Check {
 public:
  Check(StageBench& bench, StageId id, const ContractOptions& options, StageVerdict& verdict)
      : bench_(bench),
        id_(id),
        options_(options),
        verdict_(verdict),
        generator_(at::detail::createCPUGenerator(options.seed)) {}

  void run() {
    begin("rows");
    stage_ = made();
    if (!stage_) return;
    const auto first = round(*stage_, {});
    if (!first) return;
    kept();
    same_bits(*first);
    gradients(*first);
    split(*first);
    order(*first);
    abandon(*first);
    memory();
  }

 private:
  std::unique_ptr<StageProgram> made() {
    auto made = bench_.make(id_);
    if (made.ok()) return std::move(made).value();
    breach(to_string(made.error()),
           "the layers' parameters, and `make` of the family or stage kind");
    return nullptr;
  }

  void begin(const std::string& promise) {
    promise_ = promise;
    if (options_.on_begin) options_.on_begin(verdict_.stage, promise);
  }
  void kept() {
    if (verdict_.breaches.empty() || verdict_.breaches.back().promise != promise_)
      verdict_.kept.push_back(promise_);
  }
  void breach(const std::string& found, const std::string& fix) {
    verdict_.breaches.push_back({promise_, found, fix});
  }

  std::optional<StageOutcome> round(StageProgram& stage, const RoundOptions& how) {
    return round(stage, how, bench_.inputs(id_));
  }
  std::optional<StageOutcome> round(StageProgram& stage, const RoundOptions& how,
                                    const StageRows& inputs) {
    auto outcome = bench_.round(stage, id_, how, inputs);
    if (outcome.ok()) return std::move(outcome).value();
    breach(outcome.error().message, "forward and backward of the layers");
    return std::nullopt;
  }

  void same(const StageOutcome& a, const StageOutcome& b, const std::string& what,
            const std::string& fix, double tolerance = 0) {
    if (engine::same_bits(a, b)) return;
    const double off = difference(a, b);
    if (off > tolerance || tolerance == 0)
      breach(what + " differs by " + number(off) + " of the largest value", fix);
  }

  void same_bits(const StageOutcome& first) {
    begin("same bits");
    const std::string fix = "state that is kept between calls, random numbers, sums in any order";
    if (const auto second = round(*stage_, {})) same(first, *second, "a second round", fix);
    if (const auto other = made())
      if (const auto second = round(*other, {}))
        same(first, *second, "a round of the same stage, made anew,", fix);
    kept();
  }

  void split(const StageOutcome& first) {
    begin("split backward");
    if (const auto split = round(*stage_, {.is_split = true}))
      same(first, *split, "input gradients, then weight gradients: what they give",
           "weight gradients that are put off (kernels/deferred_gradients.hpp)");
    kept();
  }

  void order(const StageOutcome& first) {
    begin("order of parts");
    if (const auto last_first = round(*stage_, {.is_last_first = true}))
      same(first, *last_first, "backwards from the last part on: what they give",
           "what one part leaves for another", 1e-9);
    kept();
  }

  void abandon(const StageOutcome& first) {
    begin("abandon");
    if (const auto dropped = round(*stage_, {.is_forward_only = true})) {
      if (dropped->left != Bytes{})
        breach(std::to_string(dropped->left.count()) + " bytes count as held behind `abandon`",
               "`abandon` and `activations`");
      if (const auto again = round(*stage_, {}))
        same(first, *again, "a round behind one that was given up", "what `abandon` leaves");
    }
    kept();
  }

  void memory() {
    begin("memory");
    const CountMemory count;
    std::vector<std::int64_t> bytes;
    for (int i = 0; i < 4; ++i) {
      {
        const auto outcome = round(*stage_, {});
        if (!outcome) return;
        if (outcome->left != Bytes{})
          return breach(std::to_string(outcome->left.count()) + " bytes count as held at the end",
                        "`activations`");
      }
      stage_->abandon();
      at::empty({1});  // The count comes with an allocation.
      bytes.push_back(count.total());
    }
    // What the first round makes for all that follow is no leak.
    if (bytes[1] < bytes[2] && bytes[2] < bytes[3])
      breach("each round keeps " + std::to_string(bytes[3] - bytes[2]) + " bytes for good",
             "tensors that a layer keeps");
    kept();
  }

  at::Tensor direction(const at::Tensor& like) {
    return at::randn(like.sizes(), generator_, like.options().requires_grad(false));
  }

  /// What the step's loss and the rows that go out, weighed by their gradients, come to.
  std::optional<double> potential(const StageRows& inputs) {
    const auto outcome = round(*stage_, {.is_forward_only = true}, inputs);
    if (!outcome) return std::nullopt;
    double sum = outcome->loss;
    for (const auto& [id, rows] : outcome->sent.rows)
      if (const auto weight = bench_.inputs(id_).gradients.find(id);
          weight != bench_.inputs(id_).gradients.end())
        sum += rows.mul(weight->second).sum().item<double>();
    return sum;
  }

  void hold(double expected, const std::optional<double>& above, const std::optional<double>& below,
            double step, const std::string& of) {
    if (!above || !below) return;
    const double found = (*above - *below) / (2 * step);
    const double scale = std::max(std::abs(found), std::abs(expected));
    // What rounding leaves of two nearly equal sums.
    const double noise = 1e-13 * (std::abs(*above) + std::abs(*below)) / step;
    if (std::abs(found - expected) <= options_.tolerance * scale + noise) return;
    breach("of " + of + ": " + number(expected) + " along a direction, where the loss changes by " +
               number(found),
           "its backward");
  }

  void gradients(const StageOutcome& first) {
    begin("gradients");
    hold_rows(first);
    for (const LayerId layer : bench_.trained_layers(id_)) hold_layer(layer, first);
    kept();
  }

  void hold_rows(const StageOutcome& first) {
    if (first.sent.gradients.empty()) return;
    constexpr double kStep = 1e-5;
    StageRows above = bench_.inputs(id_), below = above;
    double expected = 0;
    for (const auto& [id, gradient] : first.sent.gradients) {
      const auto along = direction(gradient);
      expected += gradient.mul(along).sum().item<double>();
      above.rows[id] = above.rows[id].add(along, kStep);
      below.rows[id] = below.rows[id].sub(along, kStep);
    }
    const auto up = potential(above), down = potential(below);
    hold(expected, up, down, kStep, "the rows that came");
  }

  void hold_layer(LayerId layer, const StageOutcome& first) {
    constexpr double kStep = 1e-6;
    struct Moved {
      at::Tensor value, before, along;
    };
    std::vector<Moved> moved;
    double expected = 0;
    const auto& plan = bench_.plan();
    std::size_t next = 0;  // Of the gradients that the first round gave.
    for (std::size_t g = 0; g < plan.groups.size(); ++g)
      for (const ParameterUse& use : plan.groups[g].uses) {
        // A tied parameter is one value: its direction counts at every use of this stage.
        if (use.stage != id_) continue;
        const at::Tensor& gradient = first.groups[next++];
        const bool is_of_layer = std::ranges::any_of(plan.groups[g].uses, [&](const auto& other) {
          return other.stage == id_ && other.layer == layer;
        });
        if (!is_of_layer) continue;
        std::int64_t begin = 0;
        for (models::Parameter* parameter : stage_->state(GroupId{g}, use.layer).parameters()) {
          const at::Tensor value = parameter->value.detach();
          auto known = std::ranges::find_if(moved, [&](const Moved& other) {
            return other.value.data_ptr() == value.data_ptr();
          });
          if (known == moved.end())
            known = moved.insert(known, {value, value.clone(), direction(value)});
          const at::Tensor& along = known->along;
          expected +=
              gradient.narrow(0, begin, value.numel()).mul(along.flatten()).sum().item<double>();
          begin += value.numel();
        }
      }
    if (moved.empty()) return;
    const auto move = [&](double step) {
      const c10::NoGradGuard no_grad;
      for (Moved& one : moved) one.value.copy_(one.before.add(one.along, step));
    };
    move(kStep);
    const auto up = potential(bench_.inputs(id_));
    move(-kStep);
    const auto down = potential(bench_.inputs(id_));
    move(0);
    hold(expected, up, down, kStep, bench_.layer_name(layer));
  }

  StageBench& bench_;
  StageId id_;
  const ContractOptions& options_;
  StageVerdict& verdict_;
  at::Generator generator_;
  std::unique_ptr<StageProgram> stage_;
  std::string promise_;
};

}  // namespace

Result<std::vector<StageVerdict>> check_contract(const job::Job& job,
                                                 const ContractOptions& options) {
  auto made = StageBench::create(job, options.samples);
  if (!made.ok()) return std::move(made).error();
  StageBench& bench = *made.value();
  std::vector<StageVerdict> verdicts;
  for (std::size_t s = 0; s < bench.plan().stages.size(); ++s) {
    const StageId id{s};
    if (!options.module.empty() && !bench.has_module(id, options.module)) continue;
    StageVerdict& verdict = verdicts.emplace_back();
    verdict.stage = observe::stage_words(bench.plan(), bench.plan().at(id));
    const auto begin = std::chrono::steady_clock::now();
    Check(bench, id, options, verdict).run();
    verdict.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  if (verdicts.empty())
    return Error{
        Errc::not_found, "the model has no module '" + options.module + "'", "--module", {}};
  return verdicts;
}

}  // namespace troupe::engine
