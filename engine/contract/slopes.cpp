#include "engine/contract/slopes.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

namespace troupe::engine {

namespace {

constexpr std::array kSteps{1e-3, 1e-5, 1e-7};  // Of the size of the values.
constexpr double kSmallest = 0.02;              // Sizes below it count as this: biases begin at 0.
constexpr double kRoundings = 100;              // A sum carries so many of the last digit's errors.
constexpr double kNoiseStep = 1e-12;            // So near nothing bends: what differs is rounding.
constexpr int kNoisePoints = 7;
constexpr double kNoises = 10;  // A slope's rounding is at most so many times what was measured.
/// A step whose rounding may be more than this share of the gradient's norm tells nothing.
constexpr double kBlurred = 1e-5;

struct Trained {
  std::string name;
  at::Tensor value, gradient;
};

class Slopes {
 public:
  Slopes(const StageBench& bench, StageProgram& stage, StageId id, const StageRows& inputs,
         const StageOutcome& whole, const SlopeOptions& options)
      : bench_(bench),
        stage_(stage),
        id_(id),
        inputs_(inputs),
        whole_(whole),
        options_(options),
        generator_(at::detail::createCPUGenerator(options.seed)) {}

  Result<std::vector<WrongGradient>> run() {
    if (auto held = hold_rows(); !held.ok()) return held.error();
    for (const Trained& one : trained()) {
      if (wrong_.size() >= kWrongGradients) break;
      if (auto held = hold_parameter(one); !held.ok()) return held.error();
    }
    return std::move(wrong_);
  }

 private:
  /// What gradients are the slopes of; `size`: the same without signs, of which rounding is a
  /// share.
  struct Sum {
    double value = 0, size = 0;
  };
  using Move = std::function<const StageRows&(double distance)>;

  Result<Sum> sum_on(const StageRows& rows) {
    const auto outcome = bench_.round(stage_, id_, {.is_forward_only = true}, rows);
    if (!outcome.ok()) return outcome.error();
    Sum sum{outcome.value().loss, std::abs(outcome.value().loss)};
    for (const auto& [id, sent] : outcome.value().sent.rows)
      if (const auto weight = inputs_.gradients.find(id); weight != inputs_.gradients.end()) {
        const at::Tensor products = sent.mul(weight->second);
        sum.value += products.sum().item<double>();
        sum.size += products.abs().sum().item<double>();
      }
    return sum;
  }

  Result<Sum> slope(const Move& move, double step) {
    Sum slope;
    for (const auto& [distance, weight] :
         {std::pair{2.0, -1.0}, {1.0, 8.0}, {-1.0, -8.0}, {-2.0, 1.0}}) {
      const auto sum = sum_on(move(distance * step));
      if (!sum.ok()) return sum;
      slope.value += weight * sum.value().value / (12 * step);
      slope.size = std::max(slope.size, sum.value().size);
    }
    return slope;
  }

  /// Rounding of the sum, from second differences of it at moves by almost nothing: by far less
  /// than its size lets fear, so that steps may be small enough to come between the kinks of a ReLU
  /// or a router. (More and Wild, Estimating computational noise, 2011, take differences alike.)
  Result<double> noise(const Move& move) {
    std::array<double, kNoisePoints> values{};
    for (int i = 0; i < kNoisePoints; ++i) {
      const auto sum = sum_on(move(i * kNoiseStep));
      if (!sum.ok()) return sum.error();
      values[i] = sum.value().value;
    }
    double largest = std::numeric_limits<double>::epsilon() * std::abs(values[0]);
    for (int i = 2; i < kNoisePoints; ++i)
      largest = std::max(largest, std::abs(values[i] - 2 * values[i - 1] + values[i - 2]) / 2);
    return largest;
  }

  /// `gradient`: along the direction in which `move` goes; `norm`: of the gradient, by the size of
  /// a move.
  Status hold(const std::string& of, double gradient, double norm, const Move& move) {
    if (options_.on_begin) options_.on_begin();
    WrongGradient wrong{of, gradient, std::numeric_limits<double>::infinity()};
    double rounding = 0;
    for (const double step : kSteps) {
      const bool is_first = step == kSteps.front();
      // The first step counts always: it finds gradients that should be 0.
      if (!is_first && rounding / step > kBlurred * norm) break;
      const auto found = slope(move, step);
      if (!found.ok()) return found.error();
      if (is_first)
        rounding = kRoundings * std::numeric_limits<double>::epsilon() * found.value().size;
      const double blur = rounding / step;
      const double gap = std::abs(found.value().value - gradient);
      if (gap <= options_.tolerance * norm + blur) return Done{};
      if (gap < std::abs(wrong.slope - gradient)) wrong.slope = found.value().value;
      if (!is_first) continue;
      const auto measured = noise(move);
      if (!measured.ok()) return measured.error();
      rounding = std::min(rounding, kNoises * measured.value());
    }
    wrong_.push_back(std::move(wrong));
    return Done{};
  }

  at::Tensor direction(const at::Tensor& like) {
    return at::randn(like.sizes(), generator_, like.options().requires_grad(false));
  }

  Status hold_rows() {
    if (whole_.sent.gradients.empty()) return Done{};
    std::map<MessageId, at::Tensor> along;
    double expected = 0, square = 0;
    for (const auto& [id, gradient] : whole_.sent.gradients) {
      along[id] = direction(gradient);
      expected += gradient.mul(along[id]).sum().item<double>();
      square += gradient.square().sum().item<double>();
    }
    StageRows moved = inputs_;
    return hold("the rows that came", expected, std::sqrt(square),
                [&](double distance) -> const StageRows& {
                  for (const auto& [id, way] : along)
                    moved.rows[id] = inputs_.rows.at(id).add(way, distance);
                  return moved;
                });
  }

  /// A parameter that several layers of the stage use is one value, and its gradient a sum.
  std::vector<Trained> trained() const {
    std::vector<Trained> all;
    std::size_t next = 0;
    const auto& groups = bench_.plan().groups;
    for (std::size_t g = 0; g < groups.size(); ++g)
      for (const ParameterUse& use : groups[g].uses) {
        if (use.stage != id_) continue;
        const at::Tensor& gradients = whole_.groups[next++];
        std::int64_t begin = 0;
        for (const models::Parameter* parameter :
             stage_.state(GroupId{g}, use.layer).parameters()) {
          const at::Tensor value = parameter->value.detach();
          const at::Tensor gradient = gradients.narrow(0, begin, value.numel()).view(value.sizes());
          begin += value.numel();
          if (parameter->update) continue;  // What it contributes is no slope.
          const auto known = std::ranges::find_if(
              all, [&](const Trained& one) { return one.value.data_ptr() == value.data_ptr(); });
          if (known == all.end())
            all.push_back({parameter->name, value, gradient});
          else
            known->gradient = known->gradient.add(gradient);
        }
      }
    return all;
  }

  Status hold_parameter(const Trained& one) {
    const at::Tensor before = one.value.clone(), along = direction(one.value);
    const auto elements = static_cast<double>(std::max<std::int64_t>(1, before.numel()));
    const double size =
        std::max(std::sqrt(before.square().sum().item<double>() / elements), kSmallest);
    const double expected = size * one.gradient.mul(along).sum().item<double>();
    const double norm = size * std::sqrt(one.gradient.square().sum().item<double>());
    auto held = hold(one.name, expected, norm, [&](double distance) -> const StageRows& {
      one.value.copy_(before.add(along, distance * size));
      return inputs_;
    });
    one.value.copy_(before);
    return held;
  }

  const StageBench& bench_;
  StageProgram& stage_;
  StageId id_;
  const StageRows& inputs_;
  const StageOutcome& whole_;
  const SlopeOptions& options_;
  at::Generator generator_;
  std::vector<WrongGradient> wrong_;
};

}  // namespace

Result<std::vector<WrongGradient>> wrong_gradients(const StageBench& bench, StageProgram& stage,
                                                   StageId id, const StageRows& inputs,
                                                   const StageOutcome& whole,
                                                   const SlopeOptions& options) {
  return Slopes(bench, stage, id, inputs, whole, options).run();
}

}  // namespace troupe::engine
