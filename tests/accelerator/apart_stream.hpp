// What is under way on an apart device: copies to the host, which are made late.

#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <vector>

namespace troupe::apart {

/// Copies that were put on their way and have not arrived. One per device. Thread-safe.
class Stream {
 public:
  static Stream& of(int device);

  /// Host memory that gets these bytes when somebody waits for what comes behind; NaN until then.
  void copy_later(const at::Tensor& host, std::vector<std::byte> bytes);

  /// All copies so far, to be waited for.
  struct Mark;
  std::shared_ptr<Mark> mark();
  /// Makes the copies that lie before the mark, late and in order.
  void wait_for(const Mark& mark);
  void wait_for_all();

 private:
  struct Copy {
    at::Tensor host;
    std::vector<std::byte> bytes;
  };
  void arrive(std::size_t before);

  std::mutex mutex_;
  std::size_t first_ = 0;  ///< How many have arrived.
  std::vector<Copy> copies_;
};

struct Stream::Mark {
  std::size_t before = 0;
};

}  // namespace troupe::apart
