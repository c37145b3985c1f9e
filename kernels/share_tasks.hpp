// Tasks of one operator on the threads that LibTorch gives operators.
//
// Internal to kernels/.

#pragma once

#include <cstdint>
#include <functional>

namespace troupe::kernels::cpu {

/// Multiply-adds that are worth waking a thread.
inline constexpr std::int64_t kWorkOfThread = std::int64_t{1} << 20;

/// How many threads tasks of so many multiply-adds in all are worth: 1 to `at::get_num_threads`.
std::int64_t useful_threads(std::int64_t task_count, std::int64_t work);

/// Calls `run` on that many threads at once, the caller's among them; inline for one, within a
/// parallel region, and in builds with sanitizers, which do not see what LibTorch's threads wait
/// for. Throws what `run` throws.
void run_on_threads(std::int64_t threads, const std::function<void()>& run);

}  // namespace troupe::kernels::cpu
