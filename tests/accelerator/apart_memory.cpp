#include "tests/accelerator/apart_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <new>

namespace troupe::apart {

namespace {

constexpr std::size_t kBytes = std::size_t{8} << 30;  // Of addresses; pages come when written.
constexpr std::size_t kBlock = 512;

}  // namespace

Memory& Memory::of_process() {
  static auto* memory = new Memory;  // Tensors of other statics may outlive it.
  return *memory;
}

Memory::Memory() {
  const int file = memfd_create("apart", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(kBytes)) != 0) throw std::bad_alloc();
  const auto map = [&](int allowed) {
    void* at = mmap(nullptr, kBytes, allowed, MAP_SHARED | MAP_NORESERVE, file, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    return static_cast<std::byte*>(at);
  };
  closed_ = map(PROT_NONE);
  open_ = map(PROT_READ | PROT_WRITE);
  close(file);
}

void* Memory::take(std::size_t bytes) {
  const std::size_t size = std::bit_ceil(std::max(bytes, kBlock));
  const std::lock_guard lock(mutex_);
  auto& free = free_[size];
  std::byte* block = nullptr;
  if (!free.empty()) {
    block = free.back();
    free.pop_back();
  } else {
    if (used_ + size > kBytes) throw std::bad_alloc();
    block = closed_ + used_;
    used_ += size;
    std::memset(open(block), 0xff, bytes);
  }
  sizes_[block] = size;
  return block;
}

void Memory::give_back(void* address) {
  const std::lock_guard lock(mutex_);
  const auto found = sizes_.find(address);
  std::memset(open(address), 0xff, found->second);
  free_[found->second].push_back(static_cast<std::byte*>(address));
  sizes_.erase(found);
}

std::byte* Memory::open(const void* address) const {
  return open_ + (static_cast<const std::byte*>(address) - closed_);
}

}  // namespace troupe::apart
