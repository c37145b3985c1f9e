// A question to the machine that may never be answered: a folder whose server is gone, a driver
// that hangs. It is asked in a thread of its own, and nobody has to wait for it.

#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

namespace troupe::app {

/// REQUIRES: `ask` uses nothing that may be gone when it ends: where it was not answered, its
/// thread lives until the process ends, which must do without destructors (`leave`). What it
/// throws, as a family of the user's may, comes out of `answer`.
template <class T>
class Asked {
 public:
  explicit Asked(std::function<T()> ask) {
    auto promise = std::make_shared<std::promise<T>>();
    answer_ = promise->get_future();
    std::thread([promise, ask = std::move(ask)] {
      try {
        promise->set_value(ask());
      } catch (...) {
        promise->set_exception(std::current_exception());
      }
    }).detach();
  }

  /// The answer; none where there is none by `deadline`. Ask once.
  std::optional<T> answer(std::chrono::steady_clock::time_point deadline) {
    if (answer_.wait_until(deadline) != std::future_status::ready) return std::nullopt;
    return answer_.get();
  }

 private:
  std::future<T> answer_;
};

}  // namespace troupe::app
