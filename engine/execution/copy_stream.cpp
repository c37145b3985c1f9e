#include "engine/execution/copy_stream.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <pthread.h>

#include <chrono>
#include <exception>
#include <utility>

#include "engine/execution/device_errors.hpp"

namespace troupe::engine {

namespace {

constexpr std::chrono::microseconds kLook{20};

}  // namespace

CopyStream::CopyStream(c10::Device place) : place_(place), thread_([this] { serve(); }) {}

CopyStream::~CopyStream() {
  std::deque<Copy> given_up;  // What callbacks own is let go of without the lock.
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    given_up.swap(waiting_);
  }
  changed_.notify_all();
  thread_.join();
}

c10::Stream CopyStream::stream() {
  const std::lock_guard lock(stream_mutex_);
  if (!stream_) {
    auto taken = DeviceStreams::take(place_);
    TORCH_CHECK(taken.ok(), taken.error().message, "; ", taken.error().fix);
    stream_ = std::move(taken).value();
  }
  return *stream_;
}

std::shared_ptr<const Launch> CopyStream::out(at::Tensor tensor, at::Tensor host,
                                              std::function<void()> on_done) {
  Copy copy;
  copy.tensor = std::move(tensor);
  copy.host = std::move(host);
  copy.on_done = std::move(on_done);
  copy.launch = std::make_shared<Launch>();
  auto launch = copy.launch;
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(copy));
  }
  changed_.notify_all();
  return launch;
}

void CopyStream::begin(Copy& copy) {
  try {
    const c10::impl::VirtualGuardImpl guard(place_.type());
    guard.setDevice(place_);
    const c10::Stream own = stream();
    {
      const c10::StreamGuard inside(own);
      copy.host.copy_(copy.tensor, /*non_blocking=*/true);
    }
    copy.event.emplace(place_.type());
    copy.event->record(own);
  } catch (const std::exception& thrown) {
    copy.status = device_failure(thrown);
    copy.is_device_lost = is_device_lost(thrown);
    copy.event.reset();
  }
}

bool CopyStream::is_over(Copy& copy) {
  try {
    return !copy.event || copy.event->query();
  } catch (const std::exception& thrown) {
    copy.status = device_failure(thrown);
    copy.is_device_lost = is_device_lost(thrown);
    return true;
  }
}

void CopyStream::serve() {
  pthread_setname_np(pthread_self(), "copier");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stops_ || !waiting_.empty() || !begun_.empty(); });
    if (!waiting_.empty()) {  // First: the stream is not to run dry.
      begun_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
      Copy& latest = begun_.back();
      lock.unlock();
      begin(latest);
      lock.lock();
      continue;
    }
    if (begun_.empty()) return;
    Copy& first = begun_.front();
    lock.unlock();
    const bool over = is_over(first);
    if (!over) std::this_thread::sleep_for(kLook);
    if (over) {
      first.tensor = first.host = at::Tensor();
      first.launch->complete(std::move(first.status), first.is_device_lost);
    }
    lock.lock();
    if (!over) continue;
    auto on_done = std::move(first.on_done);
    begun_.pop_front();
    changed_.notify_all();
    lock.unlock();
    on_done();
    on_done = nullptr;  // What it owns is let go of without the lock.
    lock.lock();
  }
}

/// The memory is the copy stream's own: on another's, what computes there would have to end first.
at::Tensor CopyStream::in(const at::Tensor& buffer) {
  const c10::impl::VirtualGuardImpl guard(place_.type());
  const c10::Stream computing = guard.getStream(place_), own = stream();
  at::Tensor tensor;
  {
    const c10::StreamGuard inside(own);
    tensor = at::empty(buffer.sizes(), at::TensorOptions(buffer.scalar_type()).device(place_));
    tensor.copy_(buffer, /*non_blocking=*/true);
  }
  c10::Event arrived(place_.type());
  arrived.record(own);
  arrived.block(computing);
  // Who lets go of it has no more than launched what reads it.
  guard.recordDataPtrOnStream(tensor.storage().data_ptr(), computing);
  return tensor;
}

void CopyStream::drop() {
  std::deque<Copy> given_up;
  std::unique_lock lock(mutex_);
  given_up.swap(waiting_);
  changed_.wait(lock, [&] { return begun_.empty(); });
  lock.unlock();
}

}  // namespace troupe::engine
