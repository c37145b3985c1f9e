// A machine whose time passes only when its clocks are read, for tests of what measures it.

#pragma once

#include <ATen/Parallel.h>

#include <functional>
#include <utility>

#include "engine/profiling/profile_quiet.hpp"

namespace troupe::engine {

/// Every reading of the thread's processor time takes it 1 ms, and every probe too; on a slow core
/// both take longer, beside another program wall time passes as well.
struct FakeMachine {
  double wall_ms = 0, processor_ms = 0;
  std::function<double(double)> pace = [](double) { return 1.0; };   ///< Of wall time; >= 1: slow.
  std::function<double(double)> share = [](double) { return 1.0; };  ///< That the thread gets.

  double work() {
    const double took_ms = pace(wall_ms);
    processor_ms += took_ms;
    wall_ms += took_ms / share(wall_ms);
    return took_ms;
  }

  MeasuringClocks clocks() {
    return {[this] { return wall_ms; },
            [this] {
              work();
              return processor_ms;
            },
            [this] { return work(); }};
  }
};

/// Sets LibTorch's operator threads for a test.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

}  // namespace troupe::engine
