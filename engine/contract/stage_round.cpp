#include "engine/contract/stage_round.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/isfinite.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "runtime/vocabulary/first_line.hpp"
#include "runtime/vocabulary/user_code.hpp"

namespace troupe::engine {

namespace {

class Round {
 public:
  Round(StageProgram& stage, const ParallelPlan& plan, const IterationPlan& iteration, StageId id,
        const StageRows& inputs, const RoundOptions& options)
      : stage_(stage),
        plan_(plan),
        iteration_(iteration),
        id_(id),
        inputs_(inputs),
        options_(options),
        traffic_(traffic_of(plan, iteration, id)),
        trains_(trains(plan, id)),
        device_(options.device == nullptr ? *host_ : *options.device) {}

  Result<StageOutcome> run(const SampleStore& samples) {
    if (auto begun = call("begin", {}, [&] { return stage_.begin(iteration_, samples); });
        !begun.ok())
      return begun.error();
    for (const PartKey& part : traffic_.parts)
      if (auto done = forward(part); !done.ok()) return done.error();
    if (!options_.is_forward_only) {
      auto order = traffic_.parts;
      if (options_.is_last_first) std::reverse(order.begin(), order.end());
      for (const PartKey& part : order) {
        if (!traffic_.backward.contains(part)) continue;
        if (auto done = backward(part); !done.ok()) return done.error();
        if (options_.is_given_up) return finish();
      }
      for (const PartKey& part : owed_)
        if (auto done = call("backward_weight", part, [&] { return stage_.backward_weight(part); });
            !done.ok())
          return done.error();
    }
    return finish();
  }

 private:
  static Error named(const char* name, const PartKey& part, Error error) {
    error.message =
        std::string(name) +
        (part.microbatch.valid() ? " of microbatch " + std::to_string(part.microbatch.value) : "") +
        ": " + first_line(error.message);
    return error;
  }
  /// A call of the stage in work of its device, whose errors name it.
  template <class Call>
  auto call(const char* name, const PartKey& part, const Call& work) const -> decltype(work()) {
    decltype(work()) made = Error{Errc::internal, "the device has not run it", {}, {}};
    const Status ran = in_work(device_, [&]() -> Status {
      made = call_guarded(Errc::internal, work);
      return Done{};
    });
    if (!ran.ok()) return named(name, part, ran.error());
    if (!made.ok()) return named(name, part, std::move(made).error());
    return made;
  }
  /// The same of one that has no error to return.
  template <class Call>
  Status run_call(const char* name, const PartKey& part, const Call& work) const {
    return call(name, part, [&]() -> Status {
      work();
      return Done{};
    });
  }
  /// One that executors make by their own thread, while the device has nothing to do.
  template <class Call>
  static auto call_beside(const char* name, const Call& work) -> decltype(work()) {
    auto made = call_guarded(Errc::internal, work);
    if (!made.ok()) return named(name, {}, std::move(made).error());
    return made;
  }

  /// Host memory with what is to come to the device.
  at::Tensor arriving(const at::Tensor& values) const {
    at::Tensor host = device_.host_buffer(values.sizes(), values.scalar_type());
    host.copy_(values);
    return host;
  }
  /// In work: what leaves the device, in host memory when the work has completed.
  Result<at::Tensor> leaving(Result<at::Tensor> values) const {
    if (!values.ok() || !values.value().defined() || !values.value().is_contiguous()) return values;
    return device_.to_host(std::move(values).value());
  }

  Result<Bytes> activations(const PartKey& part) const {
    return call("activations", part, [&]() -> Result<Bytes> { return stage_.activations(); });
  }

  Status forward(const PartKey& part) {
    for (const MessageId id : traffic_.incoming[part]) {
      // A leaf of its own: the stage may let it collect its gradient.
      at::Tensor rows = arriving(inputs_.rows.at(id));
      if (auto done = run_call("accept_rows", part,
                               [&] { stage_.accept_rows(id, device_.to_device(std::move(rows))); });
          !done.ok())
        return done;
    }
    if (auto done = call("forward", part, [&] { return stage_.forward(part); }); !done.ok())
      return done;
    for (const MessageId id : traffic_.outgoing[part]) {
      const auto rows = call("rows_for", part, [&] { return leaving(stage_.rows_for(id)); });
      if (auto good = taken(rows, id, "rows"); !good.ok()) return good;
      outcome_.sent.rows[id] = rows.value().clone();
    }
    return options_.is_offloaded && traffic_.backward.contains(part) ? offload(part) : Done{};
  }

  Status offload(const PartKey& part) {
    const auto before = activations(part);
    if (!before.ok()) return before.error();
    const auto went = call("offload", part, [&] { return stage_.offload(part, device_); });
    if (!went.ok()) return went.error();
    away_[part] = went.value();
    return moved("offload", part, before.value(), before.value() - went.value());
  }

  Status fetch(const PartKey& part) {
    const Bytes went = away_.at(part);
    const auto before = activations(part);
    if (!before.ok()) return before.error();
    const auto came = call("fetch", part, [&] { return stage_.fetch(part, device_); });
    if (!came.ok()) return came.error();
    if (came.value() != went)
      return Error{Errc::internal,
                   "fetch of microbatch " + std::to_string(part.microbatch.value) + ": " +
                       std::to_string(came.value().count()) + " bytes come back of " +
                       std::to_string(went.count()) + " that went",
                   {},
                   {}};
    return moved("fetch", part, before.value(), before.value() + went);
  }

  /// Whether the stage counts what it holds, as it says that it has moved.
  Status moved(const std::string& name, const PartKey& part, Bytes before, Bytes wanted) const {
    const auto held = activations(part);
    if (!held.ok()) return held.error();
    if (held.value() == wanted) return Done{};
    return Error{Errc::internal,
                 name + " of microbatch " + std::to_string(part.microbatch.value) +
                     ": `activations` goes from " + std::to_string(before.count()) + " to " +
                     std::to_string(held.value().count()) + " instead of " +
                     std::to_string(wanted.count()),
                 {},
                 {}};
  }

  Status backward(const PartKey& part) {
    if (options_.is_offloaded)
      if (auto back = fetch(part); !back.ok()) return back;
    for (const MessageId id : traffic_.outgoing[part]) {
      if (!iteration_.at(id).has_backward) continue;
      at::Tensor gradient = arriving(inputs_.gradients.at(id));
      if (auto given =
              run_call("accept_gradient", part,
                       [&] { stage_.accept_gradient(id, device_.to_device(std::move(gradient))); });
          !given.ok())
        return given;
    }
    const auto done =
        options_.is_split
            ? call("backward_input", part, [&] { return stage_.backward_input(part); })
            : call("backward", part, [&] { return stage_.backward(part); });
    if (!done.ok()) return done;
    // A stage that does not train is asked for input gradients alone.
    if (options_.is_split && trains_) owed_.push_back(part);
    for (const MessageId id : traffic_.incoming[part]) {
      if (!iteration_.at(id).has_backward) continue;
      const auto gradient =
          call("gradient_for", part, [&] { return leaving(stage_.gradient_for(id)); });
      if (auto good = taken(gradient, id, "the gradient of rows"); !good.ok()) return good;
      outcome_.sent.gradients[id] = gradient.value().clone();
    }
    return Done{};
  }

  static bool trains(const ParallelPlan& plan, StageId id) {
    return std::ranges::any_of(plan.groups, [&](const ParameterGroup& group) {
      return std::ranges::any_of(group.uses,
                                 [&](const ParameterUse& use) { return use.stage == id; });
    });
  }

  Status taken(const Result<at::Tensor>& values, MessageId id, const std::string& what) const {
    if (!values.ok()) return values.error();
    const Message& message = iteration_.at(id);
    const at::Tensor& tensor = values.value();
    if (!tensor.defined()) return Error{Errc::internal, what + " are not there", {}, {}};
    const std::vector<std::int64_t> wanted{message.rows, message.width};
    if (tensor.sizes() != at::IntArrayRef(wanted)) {
      std::string sizes;
      for (const auto size : tensor.sizes())
        sizes += (sizes.empty() ? "" : " x ") + std::to_string(size);
      return Error{Errc::internal,
                   what + " are " + sizes + " instead of " + std::to_string(wanted[0]) + " x " +
                       std::to_string(wanted[1]),
                   {},
                   {}};
    }
    if (tensor.scalar_type() != at::kDouble)
      return Error{Errc::internal,
                   what + " hold " + c10::toString(tensor.scalar_type()) + " instead of " +
                       c10::toString(at::kDouble),
                   {},
                   {}};
    if (!tensor.is_contiguous()) return Error{Errc::internal, what + " are not contiguous", {}, {}};
    if (tensor.requires_grad())
      return Error{Errc::internal, what + " are not detached from autograd", {}, {}};
    if (!at::isfinite(tensor).all().item<bool>())
      return Error{Errc::internal, what + " hold numbers that are not finite", {}, {}};
    return Done{};
  }

  Result<StageOutcome> finish() {
    if (auto told = take_losses(); !told.ok()) return told.error();
    const bool ends_early = options_.is_forward_only || options_.is_given_up;
    const auto ended = call_beside(ends_early ? "abandon" : "state", [&]() -> Status {
      if (ends_early) stage_.abandon();
      if (!ends_early) take_groups();
      return Done{};
    });
    if (!ended.ok()) return ended.error();
    const auto left = activations({});
    if (!left.ok()) return left.error();
    outcome_.left = left.value();
    return std::move(outcome_);
  }

  Status take_losses() {
    const auto losses =
        call_beside("losses", [&]() -> Result<std::vector<PartLoss>> { return stage_.losses(); });
    if (!losses.ok()) return losses.error();
    for (const PartLoss& loss : losses.value()) {
      outcome_.losses.push_back(loss.sum);
      outcome_.part_losses[{loss.microbatch, loss.part}] += loss.sum;
      outcome_.loss += loss.sum / static_cast<double>(iteration_.trained_tokens);
    }
    const auto all = call_beside(
        "auxiliary", [&]() -> Result<std::vector<PartAuxiliary>> { return stage_.auxiliary(); });
    if (!all.ok()) return all.error();
    for (const PartAuxiliary& added : all.value()) {
      outcome_.losses.push_back(added.value);
      outcome_.added[added.name] += added.value;
      outcome_.loss += added.value;
    }
    return Done{};
  }

  void take_groups() {
    for (std::size_t g = 0; g < plan_.groups.size(); ++g)
      for (const ParameterUse& use : plan_.groups[g].uses)
        if (use.stage == id_)
          outcome_.groups.push_back(stage_.state(GroupId{g}, use.layer).gradients().clone());
  }

  StageProgram& stage_;
  const ParallelPlan& plan_;
  const IterationPlan& iteration_;
  StageId id_;
  const StageRows& inputs_;
  RoundOptions options_;
  StageTraffic traffic_;
  const bool trains_;
  const std::unique_ptr<Device> host_ = make_device({});
  Device& device_;
  std::map<PartKey, Bytes> away_;  ///< Of parts in host memory.
  std::vector<PartKey> owed_;
  StageOutcome outcome_;
};

/// All tensors of an outcome, in a fixed order.
std::vector<at::Tensor> tensors_of(const StageOutcome& outcome) {
  std::vector<at::Tensor> all = outcome.groups;
  for (const auto& [id, rows] : outcome.sent.rows) all.push_back(rows);
  for (const auto& [id, rows] : outcome.sent.gradients) all.push_back(rows);
  return all;
}

}  // namespace

Status in_work(Device& device, const Device::Work& work) {
  const auto launched = device.launch([&] { return call_guarded(Errc::internal, work); }, [] {});
  device.wait();
  return launched->status();
}

Result<StageOutcome> run_round(StageProgram& stage, const ParallelPlan& plan,
                               const IterationPlan& iteration, const SampleStore& samples,
                               StageId id, const StageRows& inputs, const RoundOptions& options) {
  return Round(stage, plan, iteration, id, inputs, options).run(samples);
}

bool same_bits(const StageOutcome& a, const StageOutcome& b) {
  const auto ours = tensors_of(a), theirs = tensors_of(b);
  return a.losses == b.losses &&
         std::ranges::equal(ours, theirs, [](const at::Tensor& x, const at::Tensor& y) {
           return x.sizes() == y.sizes() && at::equal(x, y);
         });
}

double larger(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::infinity();
  return std::max(a, b);
}

double difference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  const auto largest_in = [](const at::Tensor& tensor) {
    return tensor.numel() == 0 ? 0 : tensor.abs().max().item<double>();
  };
  double of_all = 0, largest = 0;
  for (const at::Tensor& tensor : a) of_all = std::max(of_all, largest_in(tensor));
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double scale = std::max({largest_in(a[i]), 1e-6 * of_all, 1e-300});
    largest = larger(largest, largest_in(a[i].sub(b[i])) / scale);
  }
  return largest;
}

double difference(const StageOutcome& a, const StageOutcome& b) {
  if (a.losses.size() != b.losses.size()) return std::numeric_limits<double>::infinity();
  double largest = difference(tensors_of(a), tensors_of(b));
  for (std::size_t i = 0; i < a.losses.size(); ++i)
    largest = larger(largest,
                     std::abs(a.losses[i] - b.losses[i]) / std::max(std::abs(a.losses[i]), 1e-300));
  return largest;
}

std::string number_words(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string difference_words(double difference) {
  return std::isfinite(difference)
             ? " differs by " + number_words(difference) + " of the largest value"
             : " differs by no finite number (a value that is none, or one too many)";
}

}  // namespace troupe::engine
