// What is under way on a stream of an apart device: copies to the host, and of a stream that is not
// the default one copies from the host too, which are made late.

#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe::apart {

/// Copies that were put on their way and have not arrived. Thread-safe.
class Stream {
 public:
  static Stream& of(int device, c10::StreamId id);
  static void wait_for_all_of(int device);

  /// Memory that processors reach, which gets these bytes when somebody waits for what comes
  /// behind; NaN until then. `of`: whose memory it is.
  void copy_later(const at::Tensor& to, std::vector<std::byte> bytes, const at::Tensor& of);

  /// Holds this until the stream has come to what is on its way now; not at all where nothing is.
  void hold(std::shared_ptr<const void> memory);

  /// All copies so far, to be waited for.
  struct Mark;
  std::shared_ptr<Mark> mark();
  /// Makes the copies that lie before the mark, late and in order.
  void wait_for(const Mark& mark);
  /// The same at once: another stream, on which nothing is late, goes on behind the mark.
  void come_to(const Mark& mark);
  void wait_for_all();

 private:
  struct Copy {
    at::Tensor to;
    std::vector<std::byte> bytes;
    at::Tensor of;
    std::shared_ptr<const void> held = {};
  };
  std::vector<Copy> arrive(std::size_t before);

  std::mutex mutex_;
  std::size_t first_ = 0;  ///< How many have arrived.
  std::vector<Copy> copies_;
};

struct Stream::Mark {
  std::size_t before = 0;
};

}  // namespace troupe::apart
