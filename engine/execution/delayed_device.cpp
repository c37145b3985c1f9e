#include "engine/execution/delayed_device.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace troupe::engine {

namespace {

/// Every byte set, which is NaN in all floating-point types.
void poison(const at::Tensor& memory) { std::memset(memory.data_ptr(), 0xff, memory.nbytes()); }

/// Host memory that is poisoned to begin with and before it is given back.
at::Tensor poisoned(at::IntArrayRef shape, at::ScalarType dtype) {
  at::Tensor memory = at::empty(shape, dtype);
  poison(memory);
  void* const data = memory.data_ptr();
  return at::from_blob(
      data, shape, [memory = std::move(memory)](void*) { poison(memory); }, dtype);
}

}  // namespace

DelayedDevice::DelayedDevice(const DeviceOptions& options)
    : delay_ms_max_(options.delay_ms_max),
      random_(static_cast<std::minstd_rand::result_type>(options.seed + 1)),
      copy_random_(static_cast<std::minstd_rand::result_type>(options.seed + 2)),
      thread_([this, options] { serve(options); }),
      copier_([this] { copy_pieces(); }) {}

DelayedDevice::~DelayedDevice() {
  std::deque<CopyOut> given_up;  // What callbacks own is let go of without the lock.
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    pieces_.clear();
    given_up.swap(copies_out_);
  }
  changed_.notify_all();
  thread_.join();
  copier_.join();
}

std::shared_ptr<const Launch> DelayedDevice::launch(Work work, std::function<void()> on_done) {
  auto launch = std::make_shared<Launch>();
  {
    const std::lock_guard lock(mutex_);
    pieces_.push_back({std::move(work), std::move(on_done), launch});
  }
  changed_.notify_all();
  return launch;
}

void DelayedDevice::serve(const DeviceOptions& options) {
  at::set_num_threads(options.threads);
  pthread_setname_np(pthread_self(), "delayed");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stops_ || !pieces_.empty(); });
    if (stops_) return;
    Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    is_running_ = true;
    lock.unlock();
    run(piece);
    const auto on_done = std::move(piece.on_done);
    piece = {};  // What it kept is let go of before anybody hears that nothing is under way.
    lock.lock();
    is_running_ = false;
    changed_.notify_all();
    lock.unlock();
    on_done();
    lock.lock();
  }
}

void DelayedDevice::run(const Piece& piece) {
  if (failed_) return piece.launch->complete(*failed_);
  sleep();
  Status status = Done{};
  piece.launch->run([&] {
    copies_.clear();
    sources_.clear();
    status = piece.work();
    sleep();
    if (status.ok() && is_overwritten())
      status = Error{Errc::internal, "host memory was written while work still read it", "",
                     "whoever writes there has to wait until the work has completed"};
    for (const auto& [host, tensor] : copies_)  // As copies go behind what else was launched.
      std::memcpy(host.data_ptr(), tensor.const_data_ptr(), host.nbytes());
    copies_.clear();
    sources_.clear();
    return status;
  });
  if (!status.ok()) failed_ = status.error();
}

void DelayedDevice::sleep() {
  std::uniform_real_distribution<double> delay(0, delay_ms_max_ / 2);
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(delay(random_)));
}

std::shared_ptr<const Launch> DelayedDevice::copy_out(at::Tensor tensor, at::Tensor host,
                                                      std::function<void()> on_done) {
  poison(host);
  auto launch = std::make_shared<Launch>();
  {
    const std::lock_guard lock(mutex_);
    at::Tensor before = tensor.clone();
    copies_out_.push_back(
        {std::move(tensor), std::move(before), std::move(host), std::move(on_done), launch});
  }
  changed_.notify_all();
  return launch;
}

void DelayedDevice::copy_pieces() {
  pthread_setname_np(pthread_self(), "copier");
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stops_ || !copies_out_.empty(); });
    if (stops_) return;
    CopyOut copy = std::move(copies_out_.front());
    copies_out_.pop_front();
    is_copying_ = true;
    lock.unlock();
    run(copy);
    auto on_done = std::move(copy.on_done);
    copy = {};
    lock.lock();
    is_copying_ = false;
    changed_.notify_all();
    lock.unlock();
    on_done();
    on_done = nullptr;  // What it owns is let go of without the lock.
    lock.lock();
  }
}

void DelayedDevice::run(const CopyOut& copy) {
  std::uniform_real_distribution<double> delay(0, delay_ms_max_ / 8);
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(delay(copy_random_)));
  copy.launch->run([&]() -> Status {
    const std::size_t bytes = copy.tensor.nbytes();
    if (bytes == 0) return Done{};
    if (std::memcmp(copy.tensor.const_data_ptr(), copy.before.const_data_ptr(), bytes) != 0)
      return Error{Errc::internal, "memory of the device was written while a copy still read it",
                   "", "whoever writes there has to wait until the copy has completed"};
    std::memcpy(copy.host.data_ptr(), copy.tensor.const_data_ptr(), bytes);
    return Done{};
  });
}

/// An accelerator may read it as late as this.
bool DelayedDevice::is_overwritten() const {
  return std::any_of(sources_.begin(), sources_.end(), [](const auto& source) {
    const auto& [host, before] = source;
    return host.nbytes() > 0 &&
           std::memcmp(host.const_data_ptr(), before.const_data_ptr(), host.nbytes()) != 0;
  });
}

at::Tensor DelayedDevice::host_buffer(at::IntArrayRef shape, at::ScalarType dtype) {
  return poisoned(shape, dtype);
}

at::Tensor DelayedDevice::to_host(at::Tensor tensor) {
  at::Tensor host = poisoned(tensor.sizes(), tensor.scalar_type());
  copies_.emplace_back(host, std::move(tensor));
  return host;
}

void DelayedDevice::write_to_host(at::Tensor tensor, at::Tensor host) {
  // The device itself writes there behind what it has read.
  std::erase_if(sources_, [&](const auto& source) { return source.first.is_alias_of(host); });
  poison(host);
  copies_.emplace_back(std::move(host), std::move(tensor));
}

at::Tensor DelayedDevice::to_device(at::Tensor buffer) {
  const auto copy = [&] {
    at::Tensor copied = at::empty(buffer.sizes(), buffer.scalar_type());
    std::memcpy(copied.data_ptr(), buffer.const_data_ptr(), buffer.nbytes());
    return copied;
  };
  at::Tensor inside = copy();
  sources_.emplace_back(buffer, copy());
  return inside;
}

void DelayedDevice::drop() {
  std::deque<CopyOut> given_up;
  std::unique_lock lock(mutex_);
  pieces_.clear();
  given_up.swap(copies_out_);
  changed_.wait(lock, [&] { return !is_running_ && !is_copying_; });
  failed_.reset();
  lock.unlock();
}

void DelayedDevice::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return pieces_.empty() && !is_running_; });
}

}  // namespace troupe::engine
