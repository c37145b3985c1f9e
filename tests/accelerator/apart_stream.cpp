#include "tests/accelerator/apart_stream.hpp"

#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

namespace troupe::apart {

namespace {

constexpr std::chrono::microseconds kLate{200};

/// Of all devices of a process, by device and number.
struct All {
  std::mutex mutex;
  std::map<std::pair<int, c10::StreamId>, Stream> streams;
};

All& all() {
  static auto* streams = new All;  // Copies of other statics may outlive it.
  return *streams;
}

}  // namespace

Stream& Stream::of(int device, c10::StreamId id) {
  const std::lock_guard lock(all().mutex);
  return all().streams[{device < 0 ? 0 : device, id}];
}

void Stream::wait_for_all_of(int device) {
  std::vector<Stream*> own;
  {
    const std::lock_guard lock(all().mutex);
    for (auto& [key, stream] : all().streams)
      if (key.first == device) own.push_back(&stream);
  }
  for (Stream* stream : own) stream->wait_for_all();
}

void Stream::copy_later(const at::Tensor& to, std::vector<std::byte> bytes, const at::Tensor& of) {
  if (to.nbytes() > 0) std::memset(to.mutable_data_ptr(), 0xff, to.nbytes());
  const std::lock_guard lock(mutex_);
  copies_.push_back({to, std::move(bytes), of});
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

void Stream::come_to(const Mark& mark) {
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
    if (!copies_[count].bytes.empty())
      std::memcpy(copies_[count].to.mutable_data_ptr(), copies_[count].bytes.data(),
                  copies_[count].bytes.size());
  copies_.erase(copies_.begin(), copies_.begin() + static_cast<std::ptrdiff_t>(count));
  first_ += count;
}

}  // namespace troupe::apart
