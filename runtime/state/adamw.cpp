#include "runtime/state/adamw.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <span>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include "kernels/gpu/adamw.hpp"
#include "kernels/gpu/tensors.hpp"

namespace troupe::state {

namespace {

// Elements per thread below which splitting costs more than it gains.
constexpr std::int64_t kElementsPerTask = 1 << 15;
// Elements whose gradients are zeroed together: with weights and moments they stay in a core's own
// caches.
constexpr std::int64_t kElementsPerPass = 1 << 13;

template <class Number>
struct Coefficients {
  Number clip, decay, mean_rate, square_decay, square_rate, step_size, root_correction, eps;
};

template <class Number>
Coefficients<Number> coefficients(const AdamWOptions& options, double learning_rate,
                                  double clip_factor, std::int64_t step, bool decays) {
  const auto exponent = static_cast<double>(step);
  const double correction = 1 - std::pow(options.beta1, exponent);
  const double square_correction = 1 - std::pow(options.beta2, exponent);
  const double decay = decays ? 1 - learning_rate * options.weight_decay : 1;
  return {static_cast<Number>(clip_factor),
          static_cast<Number>(decay),
          static_cast<Number>(1 - options.beta1),
          static_cast<Number>(options.beta2),
          static_cast<Number>(1 - options.beta2),
          static_cast<Number>(learning_rate / correction),
          static_cast<Number>(std::sqrt(square_correction)),
          static_cast<Number>(options.eps)};
}

// `gradient` may be null: zeros.
template <class Number>
void update(Number* __restrict weight, Number* __restrict mean, Number* __restrict square,
            const Number* __restrict gradient, std::int64_t begin, std::int64_t end,
            const Coefficients<Number>& c) {
  for (std::int64_t i = begin; i < end; ++i) {
    const Number g = gradient == nullptr ? Number{0} : gradient[i] * c.clip;
    const Number m = mean[i] + c.mean_rate * (g - mean[i]);
    const Number v = c.square_decay * square[i] + c.square_rate * g * g;
    mean[i] = m;
    square[i] = v;
    const Number denominator = std::sqrt(v) / c.root_correction + c.eps;
    weight[i] = weight[i] * c.decay - c.step_size * (m / denominator);
  }
}

template <class Number>
void update_on_cpu(const at::Tensor& weight, AdamWState& state, const at::Tensor& gradient,
                   const Coefficients<Number>& c, GradientAfter after) {
  Number* weights = weight.mutable_data_ptr<Number>();
  Number* means = state.exp_avg.mutable_data_ptr<Number>();
  Number* squares = state.exp_avg_sq.mutable_data_ptr<Number>();
  Number* gradients = gradient.defined() ? gradient.mutable_data_ptr<Number>() : nullptr;
  at::parallel_for(0, weight.numel(), kElementsPerTask, [&](std::int64_t first, std::int64_t last) {
    if (gradients == nullptr || after == GradientAfter::kept)
      return update(weights, means, squares, gradients, first, last, c);
    for (std::int64_t begin = first; begin < last; begin += kElementsPerPass) {
      const std::int64_t end = std::min(last, begin + kElementsPerPass);
      update(weights, means, squares, gradients, begin, end, c);
      std::fill(gradients + begin, gradients + end, Number{0});
    }
  });
}

bool is_bf16_copy(const at::Tensor& parameter, const AdamWState& state) {
  return state.master.defined() && parameter.scalar_type() == at::kBFloat16;
}

// Whose `rounded` is the parameter, where that is a bf16 copy of its weight.
kernels::gpu::AdamWTensor on_gpu(const at::Tensor& parameter, const AdamWState& state,
                                 const at::Tensor& gradient, double decay) {
  const auto data = [](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.mutable_data_ptr() : nullptr;
  };
  return {parameter.numel(),
          decay,
          data(master_of(parameter, state)),
          data(state.exp_avg),
          data(state.exp_avg_sq),
          data(gradient),
          is_bf16_copy(parameter, state) ? data(parameter) : nullptr};
}

// `like`: a tensor of the state's type, on the GPU.
void update_on_gpu(std::span<const kernels::gpu::AdamWTensor> tensors, const at::Tensor& like,
                   const Coefficients<double>& c, GradientAfter after) {
  kernels::gpu::adamw(
      tensors,
      {{c.clip, c.mean_rate, c.square_decay, c.square_rate, c.step_size, c.root_correction, c.eps},
       like.scalar_type() == at::kDouble,
       after == GradientAfter::zero},
      kernels::gpu::Place(like).stream);
}

// All in one launch: decay alone differs from one to the next.
void step_on_gpu(const std::vector<at::Tensor>& parameters, const std::vector<AdamWState>& states,
                 const std::vector<at::Tensor>& gradients, const Coefficients<double>& c) {
  std::vector<kernels::gpu::AdamWTensor> tensors;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    tensors.push_back(
        on_gpu(parameters[i], states[i], gradients[i], parameters[i].dim() >= 2 ? c.decay : 1));
  update_on_gpu(tensors, gradients.front(), c, GradientAfter::zero);
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (states[i].master.defined() && !is_bf16_copy(parameters[i], states[i]))
      parameters[i].detach().copy_(states[i].master);
}

// Elementwise, as PyTorch's own AdamW does it on devices whose memory the CPU cannot reach: the
// same bits for one tensor as for many at once. A bias correction per step needs the step there.
void update_by_operators(const std::vector<at::Tensor>& weights,
                         const std::vector<at::Tensor>& means,
                         const std::vector<at::Tensor>& squares,
                         const std::vector<at::Tensor>& clipped, const AdamWOptions& options,
                         double learning_rate, std::int64_t step, bool decays) {
  if (weights.empty()) return;
  const at::Tensor count = at::full({}, step, weights.front().options().dtype(at::kFloat));
  const std::vector<at::Tensor> counts(weights.size(), count);
  at::_fused_adamw_(weights, clipped, means, squares, /*max_exp_avg_sqs=*/{}, counts, learning_rate,
                    options.beta1, options.beta2, decays ? options.weight_decay : 0, options.eps,
                    /*amsgrad=*/false, /*maximize=*/false);
}

void step_by_operators(const std::vector<at::Tensor>& parameters,
                       const std::vector<AdamWState>& states,
                       const std::vector<at::Tensor>& gradients, const AdamWOptions& options,
                       double learning_rate, double clip_factor, std::int64_t step) {
  at::_foreach_mul_(gradients, clip_factor);
  for (const bool decays : {true, false}) {
    std::vector<at::Tensor> weights, means, squares, own;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if ((parameters[i].dim() >= 2) != decays) continue;
      // Flat, so that all four have the same strides whatever views they are.
      weights.push_back(master_of(parameters[i], states[i]).detach().view({-1}));
      means.push_back(states[i].exp_avg.view({-1}));
      squares.push_back(states[i].exp_avg_sq.view({-1}));
      own.push_back(gradients[i].view({-1}));
    }
    update_by_operators(weights, means, squares, own, options, learning_rate, step, decays);
  }
  at::_foreach_zero_(gradients);
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (states[i].master.defined()) parameters[i].detach().copy_(states[i].master);
}

}  // namespace

AdamWState make_adamw_state(const at::Tensor& parameter) {
  assert(parameter.is_floating_point() && parameter.is_contiguous());
  const c10::AutoGradMode no_grad(false);
  AdamWState state;
  if (parameter.element_size() < 4) state.master = parameter.detach().to(at::kFloat);
  const auto& exact = master_of(parameter, state);
  state.exp_avg = at::zeros_like(exact);
  state.exp_avg_sq = at::zeros_like(exact);
  return state;
}

const at::Tensor& master_of(const at::Tensor& parameter, const AdamWState& state) {
  return state.master.defined() ? state.master : parameter;
}

void adamw_step(at::Tensor& parameter, AdamWState& state, const at::Tensor& gradient,
                const AdamWOptions& options, double learning_rate, double clip_factor,
                std::int64_t step, GradientAfter after) {
  assert(step >= 1);
  const c10::AutoGradMode no_grad(false);
  const bool decays = parameter.dim() >= 2;
  const at::Tensor weight = master_of(parameter, state).detach();
  assert(weight.is_contiguous() && state.exp_avg.is_contiguous());
  assert(!gradient.defined() || gradient.sizes() == parameter.sizes());
  const auto exact = coefficients<double>(options, learning_rate, clip_factor, step, decays);
  const at::Tensor plain =
      gradient.defined() ? gradient.detach().to(weight.scalar_type()).contiguous() : gradient;
  if (kernels::gpu::takes(weight)) {
    const auto tensor = on_gpu(parameter, state, plain, exact.decay);
    update_on_gpu({&tensor, 1}, weight, exact, after);
    if (state.master.defined() && !is_bf16_copy(parameter, state))
      parameter.detach().copy_(state.master);
    if (after == GradientAfter::zero && gradient.defined() && !plain.is_alias_of(gradient))
      gradient.zero_();
    return;
  }
  if (!weight.device().is_cpu())
    update_by_operators({weight}, {state.exp_avg}, {state.exp_avg_sq},
                        {plain.defined() ? plain.mul(clip_factor) : at::zeros_like(weight)},
                        options, learning_rate, step, decays);
  else if (weight.scalar_type() == at::kDouble)
    update_on_cpu(weight, state, plain, exact, after);
  else
    update_on_cpu(weight, state, plain,
                  coefficients<float>(options, learning_rate, clip_factor, step, decays), after);
  if (after == GradientAfter::zero && gradient.defined() &&
      !(weight.device().is_cpu() && plain.is_alias_of(gradient)))
    gradient.zero_();
  if (state.master.defined()) parameter.detach().copy_(state.master);
}

void adamw_steps(const std::vector<at::Tensor>& parameters, const std::vector<AdamWState>& states,
                 const std::vector<at::Tensor>& gradients, const AdamWOptions& options,
                 double learning_rate, double clip_factor, std::int64_t step) {
  assert(step >= 1 && parameters.size() == states.size() && parameters.size() == gradients.size());
  if (parameters.empty()) return;
  const c10::AutoGradMode no_grad(false);
  if (kernels::gpu::takes(gradients.front()))
    return step_on_gpu(
        parameters, states, gradients,
        coefficients<double>(options, learning_rate, clip_factor, step, /*decays=*/true));
  if (!gradients.front().is_cpu())
    return step_by_operators(parameters, states, gradients, options, learning_rate, clip_factor,
                             step);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor parameter = parameters[i];
    AdamWState state = states[i];
    adamw_step(parameter, state, gradients[i], options, learning_rate, clip_factor, step,
               GradientAfter::zero);
  }
}

}  // namespace troupe::state
