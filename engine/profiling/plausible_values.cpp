#include "engine/profiling/plausible_values.hpp"

#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstdint>

namespace troupe::engine {

void fill_plausibly(models::Layer& layer) {
  constexpr std::int64_t kDifferent = std::int64_t{1} << 20;
  constexpr double kDeviation = 0.02;
  const c10::NoGradGuard no_grad;
  for (auto& parameter : layer.parameters()) {
    const at::Tensor flat = parameter.value.view(-1);
    if (parameter.value.dim() < 2) {
      flat.fill_(1);
      continue;
    }
    const auto count = std::min(kDifferent, flat.numel());
    const at::Tensor drawn =
        at::randn({count}, flat.options().requires_grad(false)).mul_(kDeviation);
    for (std::int64_t begin = 0; begin < flat.numel(); begin += count) {
      const auto length = std::min(count, flat.numel() - begin);
      flat.narrow(0, begin, length).copy_(drawn.narrow(0, 0, length));
    }
  }
}

}  // namespace troupe::engine
