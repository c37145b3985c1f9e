#include "kernels/share_tasks.hpp"

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "tests/kernels/masked_heads.hpp"
#include "tests/sanitized.hpp"
#include "tests/torch_catch.hpp"

using namespace troupe::kernels;
using namespace troupe::kernels::cpu;

TEST_CASE("tasks run on several threads at once", "[kernels]") {
  if (troupe::testing::kSanitized) SKIP("operators of a sanitized build are serial");
  const UseThreads threads(3);
  std::atomic<int> inside{0};
  run_on_threads(3, [&] {
    ++inside;
    // Each waits for the others: alone it would never go on.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (inside < 3 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    if (inside < 3) throw std::runtime_error("alone");
  });
  CHECK(inside == 3);
}

TEST_CASE("what a task throws reaches the caller", "[kernels][errors]") {
  const UseThreads threads(2);
  CHECK_THROWS_AS(run_on_threads(2, [] { throw std::runtime_error("task"); }), std::runtime_error);
}

TEST_CASE("threads are woken for work that is worth them", "[kernels]") {
  const UseThreads threads(4);
  CHECK(useful_threads(100, kWorkOfThread - 1) == 1);
  CHECK(useful_threads(100, 3 * kWorkOfThread) == 3);
  CHECK(useful_threads(2, 100 * kWorkOfThread) == 2);
  CHECK(useful_threads(100, 100 * kWorkOfThread) == 4);
  CHECK(useful_threads(0, 0) == 1);
}
