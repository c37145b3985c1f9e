#include "tests/accelerator/apart_stream.hpp"

#include <chrono>
#include <cstring>
#include <iterator>
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

void Stream::hold(std::shared_ptr<const void> memory) {
  const std::lock_guard lock(mutex_);
  if (!copies_.empty()) copies_.push_back({{}, {}, {}, std::move(memory)});
}

std::shared_ptr<Stream::Mark> Stream::mark() {
  const std::lock_guard lock(mutex_);
  return std::make_shared<Mark>(Mark{first_ + copies_.size()});
}

void Stream::wait_for(const Mark& mark) {
  std::this_thread::sleep_for(kLate);
  std::vector<Copy> over;  // Let go of without the lock: it may be held on this stream again.
  const std::lock_guard lock(mutex_);
  over = arrive(mark.before);
}

void Stream::come_to(const Mark& mark) {
  std::vector<Copy> over;
  const std::lock_guard lock(mutex_);
  over = arrive(mark.before);
}

void Stream::wait_for_all() {
  std::vector<Copy> over;
  const std::lock_guard lock(mutex_);
  over = arrive(first_ + copies_.size());
}

std::vector<Stream::Copy> Stream::arrive(std::size_t before) {
  std::size_t count = 0;
  for (; first_ + count < before && count < copies_.size(); ++count)
    if (!copies_[count].bytes.empty())
      std::memcpy(copies_[count].to.mutable_data_ptr(), copies_[count].bytes.data(),
                  copies_[count].bytes.size());
  const auto end = copies_.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<Copy> over(std::make_move_iterator(copies_.begin()), std::make_move_iterator(end));
  copies_.erase(copies_.begin(), end);
  first_ += count;
  return over;
}

}  // namespace troupe::apart
