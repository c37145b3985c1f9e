#include "tests/accelerator/apart_stream.hpp"

#include <array>
#include <chrono>
#include <cstring>
#include <thread>

namespace troupe::apart {

namespace {

constexpr int kDevices = 8;
constexpr std::chrono::microseconds kLate{200};

}  // namespace

Stream& Stream::of(int device) {
  static auto* streams = new std::array<Stream, kDevices>;
  return (*streams)[static_cast<std::size_t>(device < 0 ? 0 : device)];
}

void Stream::copy_later(const at::Tensor& host, std::vector<std::byte> bytes) {
  std::memset(host.mutable_data_ptr(), 0xff, host.nbytes());
  const std::lock_guard lock(mutex_);
  copies_.push_back({host, std::move(bytes)});
}

std::shared_ptr<Stream::Mark> Stream::mark() {
  const std::lock_guard lock(mutex_);
  return std::make_shared<Mark>(Mark{first_ + copies_.size()});
}

void Stream::wait_for(const Mark& mark) {
  std::this_thread::sleep_for(kLate);
  const std::lock_guard lock(mutex_);
  arrive(mark.before);
}

void Stream::wait_for_all() {
  const std::lock_guard lock(mutex_);
  arrive(first_ + copies_.size());
}

void Stream::arrive(std::size_t before) {
  std::size_t count = 0;
  for (; first_ + count < before && count < copies_.size(); ++count)
    std::memcpy(copies_[count].host.mutable_data_ptr(), copies_[count].bytes.data(),
                copies_[count].bytes.size());
  copies_.erase(copies_.begin(), copies_.begin() + static_cast<std::ptrdiff_t>(count));
  first_ += count;
}

}  // namespace troupe::apart
