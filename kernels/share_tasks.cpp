// Compiled with OpenMP, as LibTorch is: without, its headers' `parallel_for` is a plain loop.

#include "kernels/share_tasks.hpp"

#include <ATen/Parallel.h>

#include <algorithm>

namespace troupe::kernels::cpu {

std::int64_t useful_threads(std::int64_t task_count, std::int64_t work) {
  return std::clamp<std::int64_t>(std::min(task_count, work / kWorkOfThread), 1,
                                  at::get_num_threads());
}

void run_on_threads(std::int64_t threads, const std::function<void()>& run) {
  at::parallel_for(0, threads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; ++begin) run();
  });
}

}  // namespace troupe::kernels::cpu
