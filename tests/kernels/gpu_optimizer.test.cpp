// The optimizer on a GPU beside that of a CPU.

#include <c10/util/accumulate.h>

#include <cmath>
#include <limits>
#include <vector>

#include "runtime/state/adamw.hpp"
#include "runtime/state/gradient_norm.hpp"
#include "tests/kernels/a_gpu.hpp"
#include "tests/kernels/gradient_check.hpp"
#include "tests/torch_catch.hpp"

using namespace troupe;
using namespace troupe::kernels;
using namespace troupe::state;

namespace {

// All that three steps leave behind: parameter, master, moments and gradient.
std::vector<at::Tensor> stepped(const at::Tensor& initial, at::Device device, GradientAfter after) {
  auto parameter = initial.to(device, /*non_blocking=*/false, /*copy=*/true);
  auto state = make_adamw_state(parameter);
  at::Tensor gradient;
  for (int step = 1; step <= 3; ++step) {
    gradient = values(initial.sizes().vec(), 10 + step).to(state.exp_avg.options());
    if (step == 2) gradient = gradient.to(at::kDouble);  // Any type.
    adamw_step(parameter, state, gradient, {}, 1e-2 / step, 0.7, step, after);
  }
  adamw_step(parameter, state, {}, {}, 1e-3, 1, 4, after);  // No gradient: zeros.
  std::vector<at::Tensor> found{parameter, state.exp_avg, state.exp_avg_sq, gradient};
  if (state.master.defined()) found.push_back(state.master);
  for (auto& tensor : found) tensor = tensor.cpu();
  return found;
}

// A group of parameters whose gradients lie end to end, as in an engine, and so begin anywhere.
struct Group {
  std::vector<at::Tensor> parameters, gradients;
  std::vector<AdamWState> states;

  Group(at::ScalarType type, at::Device device) {
    std::int64_t total = 0;
    std::vector<std::vector<std::int64_t>> shapes;
    for (std::int64_t i = 0; i < 70; ++i) {  // More than one launch takes.
      if (i % 3 == 0)
        shapes.push_back({i + 1, 64});  // Whole vectors.
      else
        shapes.push_back(i % 3 == 1 ? std::vector<std::int64_t>{1500 + i}
                                    : std::vector<std::int64_t>{3, i, 5});
      total += c10::multiply_integers(shapes.back());
    }
    const auto sums = values({total}, 7).to(type == at::kDouble ? at::kDouble : at::kFloat);
    const auto flat = sums.to(device, /*non_blocking=*/false, /*copy=*/true);
    std::int64_t begin = 0;
    for (const auto& shape : shapes) {
      const auto size = c10::multiply_integers(shape);
      parameters.push_back(values(shape, 11 + begin).to(type).to(device));
      states.push_back(make_adamw_state(parameters.back()));
      gradients.push_back(flat.narrow(0, begin, size).view(shape));
      begin += size;
    }
  }

  std::vector<at::Tensor> found() const {
    std::vector<at::Tensor> all;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      for (const at::Tensor& tensor :
           {parameters[i], gradients[i], states[i].master, states[i].exp_avg, states[i].exp_avg_sq})
        if (tensor.defined()) all.push_back(tensor.cpu());
    return all;
  }
};

}  // namespace

TEST_CASE("a group's step on a GPU has the bits of a CPU", "[kernels][gpu]") {
  TROUPE_ON_A_GPU(device);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    CAPTURE(type);
    Group there(type, device), here(type, at::kCPU);
    for (int step = 1; step <= 2; ++step) {
      for (Group* group : {&there, &here})
        adamw_steps(group->parameters, group->states, group->gradients, {.weight_decay = 0.2}, 1e-2,
                    0.7, step);
      const auto wanted = here.found(), found = there.found();
      REQUIRE(found.size() == wanted.size());
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        CAPTURE(step, i);
        CHECK(found[i].equal(wanted[i]));
      }
    }
  }
}

TEST_CASE("AdamW on a GPU has the bits of a CPU", "[kernels][gpu]") {
  TROUPE_ON_A_GPU(device);
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16})
    for (const auto& shape : {std::vector<std::int64_t>{1}, {7}, {33, 5}, {64, 300}})
      for (const auto after : {GradientAfter::kept, GradientAfter::zero}) {
        CAPTURE(type, shape);
        const auto initial = values(shape, 3).to(type);
        const auto wanted = stepped(initial, at::kCPU, after);
        const auto found = stepped(initial, device, after);
        REQUIRE(found.size() == wanted.size());
        for (std::size_t i = 0; i < wanted.size(); ++i) {
          CAPTURE(i);
          CHECK(found[i].equal(wanted[i]));
        }
      }
}

TEST_CASE("norms on a GPU are those of a CPU, with the same bits each time", "[kernels][gpu]") {
  TROUPE_ON_A_GPU(device);
  for (const auto type : {at::kDouble, at::kFloat})
    for (const std::int64_t size : {1, 5, 1000, 3'000'001}) {
      CAPTURE(type, size);
      const auto initial = values({size}, 3).to(type);
      const auto there = initial.to(device);
      const double wanted = squared_norm(initial), found = squared_norm(there);
      CHECK(std::abs(found - wanted) <= 1e-12 * wanted);
      for (int again = 0; again < 20; ++again) CHECK(squared_norm(there) == found);
      if (size < 3) continue;
      there[2] = std::numeric_limits<double>::infinity();
      CHECK_FALSE(std::isfinite(squared_norm(there)));
      const auto part = there.narrow(0, 3, size - 3);  // Begins anywhere.
      CHECK(squared_norm(part) == squared_norm(part.clone()));
      CHECK(std::abs(squared_norm(part) - squared_norm(part.cpu())) <= 1e-12 * wanted);
    }
}

TEST_CASE("parts of a range are added up on a GPU in launches that share a room",
          "[kernels][gpu]") {
  TROUPE_ON_A_GPU(device);
  const std::vector<IndexRange> out{{100, 1003}, {2000, 2001}, {40'000, 50'000}};
  const IndexRange range{50, 300'003};
  for (const auto type : {at::kDouble, at::kFloat}) {
    CAPTURE(type);
    const auto initial = values({300'100}, 3).to(type);
    const auto there = initial.to(device);
    const auto wanted = measure_range(initial, range, out),
               found = measure_range(there, range, out);
    CHECK(std::abs(found.squared_norm - wanted.squared_norm) <= 1e-12 * wanted.squared_norm);
    CHECK(found.finite);
    there[40'007] = std::numeric_limits<double>::infinity();
    const auto again = measure_range(there, range, out);
    CHECK(again.squared_norm == found.squared_norm);  // What is left out is in no norm.
    CHECK_FALSE(again.finite);
  }
}
