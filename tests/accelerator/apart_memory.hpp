// Memory that only its device can reach: every block is there twice, once where tensors say they
// are, where a processor that reads or writes ends its process, and once where the device works.

#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

namespace troupe::apart {

/// Of all apart devices of a process. Thread-safe. What nobody has written is NaN in every
/// floating-point type, and so is what was given back.
class Memory {
 public:
  static Memory& of_process();

  /// A block's address, as tensors have it. Throws std::bad_alloc.
  void* take(std::size_t bytes);
  void give_back(void* address);

  /// Where the device works on it. REQUIRES: in a block that was taken.
  std::byte* open(const void* address) const;

 private:
  Memory();

  std::mutex mutex_;
  std::byte* closed_ = nullptr;
  std::byte* open_ = nullptr;
  std::size_t used_ = 0;
  std::map<const void*, std::size_t> sizes_;             ///< Of blocks that are taken.
  std::map<std::size_t, std::vector<std::byte*>> free_;  ///< By size.
};

}  // namespace troupe::apart
