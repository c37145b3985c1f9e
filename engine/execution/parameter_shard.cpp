#include "engine/execution/parameter_shard.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "engine/execution/device.hpp"
#include "engine/execution/own_step.hpp"
#include "runtime/state/tensor_hash.hpp"

namespace troupe::engine {

namespace {

std::vector<state::AdamWState> fresh_states(const std::vector<models::Parameter*>& parameters) {
  std::vector<state::AdamWState> states;
  for (const auto* parameter : parameters)
    states.push_back(state::make_adamw_state(parameter->value));
  return states;
}

/// Masters and moments that there are.
std::vector<at::Tensor*> fields_of(std::vector<state::AdamWState>& states) {
  std::vector<at::Tensor*> fields;
  for (state::AdamWState& own : states)
    for (at::Tensor* tensor : {&own.master, &own.exp_avg, &own.exp_avg_sq})
      if (tensor->defined() && tensor->numel() > 0) fields.push_back(tensor);
  return fields;
}

/// Whether a tensor begins where another one of its block of memory ends, but for the numbers that
/// bring it to a whole cache line. Nothing else lies there: all others begin at one too
/// (engine/state/state_store).
bool follows(const at::Tensor& before, const at::Tensor& tensor) {
  constexpr std::int64_t kNumbers = 32;
  const std::int64_t end = before.storage_offset() + before.numel();
  const std::int64_t line = (end + kNumbers - 1) / kNumbers * kNumbers;
  return before.storage().unsafeGetStorageImpl() == tensor.storage().unsafeGetStorageImpl() &&
         before.scalar_type() == tensor.scalar_type() && before.is_contiguous() &&
         tensor.is_contiguous() &&
         (tensor.storage_offset() == end || tensor.storage_offset() == line);
}

/// The memory from the begin of one tensor to the end of another.
at::Tensor flat_over(const at::Tensor& first, const at::Tensor& last) {
  const std::vector<std::int64_t> strides{1};
  const std::vector<std::int64_t> sizes{last.storage_offset() + last.numel() -
                                        first.storage_offset()};
  return at::empty({0}, first.options())
      .set_(first.storage(), first.storage_offset(), sizes, strides);
}

}  // namespace

ParameterShard::ParameterShard(std::vector<models::Parameter*> parameters)
    : ParameterShard(parameters, fresh_states(parameters)) {}

ParameterShard::ParameterShard(std::vector<models::Parameter*> parameters,
                               std::vector<state::AdamWState> optimizers)
    : parameters_(std::move(parameters)), optimizers_(std::move(optimizers)) {
  std::int64_t elements = 0;
  for (const auto* parameter : parameters_) elements += parameter->value.numel();
  const at::TensorOptions like =
      parameters_.empty() ? at::TensorOptions(at::kFloat) : parameters_[0]->value.options();
  const bool fp64 = like.dtype() == at::kDouble;
  gradients_ = at::zeros({elements}, like.dtype(fp64 ? at::kDouble : at::kFloat));
  std::int64_t begin = 0;
  for (const auto* parameter : parameters_) {
    const at::Tensor& value = parameter->value;
    slices_.push_back(gradients_.narrow(0, begin, value.numel()).view(value.sizes()));
    if (parameter->update) own_updates_.push_back({begin, begin + value.numel()});
    begin += value.numel();
  }
  zero();
}

void ParameterShard::zero() {
  if (!std::exchange(is_zero_, false)) gradients_.zero_();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& value = parameters_[i]->value;
    // Autograd adds in place to a gradient that is there, hence into the flat tensor.
    value.mutable_grad() =
        value.scalar_type() == gradients_.scalar_type() ? slices_[i] : at::Tensor{};
  }
}

void ParameterShard::harvest() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& value = parameters_[i]->value;
    if (value.scalar_type() == gradients_.scalar_type() || !value.grad().defined()) continue;
    slices_[i].add_(value.grad());
    value.mutable_grad() = at::Tensor{};
  }
}

Bytes ParameterShard::optimizer_bytes() const {
  std::size_t bytes = 0;
  for (const state::AdamWState& own : optimizers_)
    for (const at::Tensor& tensor : {own.master, own.exp_avg, own.exp_avg_sq})
      if (tensor.defined()) bytes += tensor.nbytes();
  return Bytes{static_cast<std::int64_t>(bytes)};
}

Bytes ParameterShard::fetch_state(Device& device) {
  TORCH_CHECK(!has_fetched_state(), "moments come that are on the device already");
  const c10::NoGradGuard no_grad;
  in_host_ = optimizers_;
  std::vector<at::Tensor*> fields = fields_of(optimizers_);
  std::sort(fields.begin(), fields.end(), [](const at::Tensor* a, const at::Tensor* b) {
    return std::pair(a->storage().unsafeGetStorageImpl(), a->storage_offset()) <
           std::pair(b->storage().unsafeGetStorageImpl(), b->storage_offset());
  });
  for (auto begin = fields.begin(); begin != fields.end();) {
    auto end = begin + 1;
    while (end != fields.end() && follows(**(end - 1), **end)) ++end;
    const at::Tensor host = flat_over(**begin, **(end - 1));
    at::Tensor copy = device.to_device(host);
    // On a CPU too the plan's copies are made, so that what they cost is measured.
    if (copy.is_same(host)) copy = host.clone();
    const std::int64_t first = (*begin)->storage_offset();
    for (; begin != end; ++begin) {
      at::Tensor& own = **begin;
      own = copy.as_strided(own.sizes(), own.strides(), own.storage_offset() - first);
    }
    runs_.push_back({host, std::move(copy)});
  }
  return optimizer_bytes();
}

Bytes ParameterShard::offload_state(Device& device) {
  TORCH_CHECK(has_fetched_state(), "moments go to host memory that have not come");
  const c10::NoGradGuard no_grad;
  for (const Run& run : runs_) device.write_to_host(run.copy, run.host);
  forget_fetched_state();
  return optimizer_bytes();
}

void ParameterShard::forget_fetched_state() {
  runs_.clear();
  if (has_fetched_state()) optimizers_ = std::exchange(in_host_, {});
}

void ParameterShard::update(const state::AdamWOptions& options, std::int64_t step,
                            double learning_rate, double clip) {
  take_own_steps(step, learning_rate);
  std::vector<at::Tensor> values, gradients;
  std::vector<state::AdamWState> states;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i]->update) continue;
    values.push_back(parameters_[i]->value);
    gradients.push_back(slices_[i]);
    states.push_back(optimizers_[i]);
  }
  state::adamw_steps(values, states, gradients, options, learning_rate, clip, step);
  is_zero_ = true;
}

/// Before anything is clipped.
void ParameterShard::take_own_steps(std::int64_t step, double learning_rate) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i]->update) continue;
    own_step(*parameters_[i], optimizers_[i], slices_[i], step, learning_rate);
    slices_[i].zero_();
  }
}

void ParameterShard::copy_from(const ParameterShard& other) {
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i]->value.copy_(other.parameters_[i]->value);
    state::AdamWState& own = optimizers_[i];
    const state::AdamWState& source = other.optimizers_[i];
    if (own.master.defined()) own.master.copy_(source.master);
    own.exp_avg.copy_(source.exp_avg);
    own.exp_avg_sq.copy_(source.exp_avg_sq);
  }
}

void ParameterShard::copy_gradients(std::map<std::string, at::Tensor>& target) const {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    target[parameters_[i]->name] = slices_[i].clone();
}

std::uint64_t ParameterShard::hash() const {
  std::uint64_t hash = state::kHashSeed;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    hash = state::hash_tensor(parameters_[i]->value, hash);
    const state::AdamWState& own = optimizers_[i];
    for (const at::Tensor& tensor : {own.master, own.exp_avg, own.exp_avg_sq})
      if (tensor.defined()) hash = state::hash_tensor(tensor, hash);
  }
  return hash;
}

std::vector<models::Parameter*> parameters_of(const ParallelPlan& plan, GroupId group,
                                              models::Layer& layer) {
  const ParameterGroup& wanted = plan.groups[group.index()];
  std::vector<models::Parameter*> parameters;
  for (auto& parameter : layer.parameters()) {
    const bool tied =
        std::any_of(plan.model.tied.begin(), plan.model.tied.end(),
                    [&](const TiedParameter& entry) { return entry.name == parameter.name; });
    const bool belongs = wanted.tied ? parameter.name == wanted.name : !tied;
    if (parameter.value.requires_grad() && belongs) parameters.push_back(&parameter);
  }
  return parameters;
}

}  // namespace troupe::engine
