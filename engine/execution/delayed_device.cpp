#include "engine/execution/delayed_device.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <pthread.h>

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
      thread_([this, options] { serve(options); }) {}

DelayedDevice::~DelayedDevice() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    pieces_.clear();
  }
  changed_.notify_all();
  thread_.join();
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
    status = piece.work();
    sleep();
    for (const auto& [host, tensor] : copies_)  // As copies go behind what else was launched.
      std::memcpy(host.data_ptr(), tensor.const_data_ptr(), host.nbytes());
    copies_.clear();
    return status;
  });
  if (!status.ok()) failed_ = status.error();
}

void DelayedDevice::sleep() {
  std::uniform_real_distribution<double> delay(0, delay_ms_max_ / 2);
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(delay(random_)));
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
  poison(host);
  copies_.emplace_back(std::move(host), std::move(tensor));
}

at::Tensor DelayedDevice::to_device(at::Tensor buffer) {
  at::Tensor copy = at::empty(buffer.sizes(), buffer.scalar_type());
  std::memcpy(copy.data_ptr(), buffer.const_data_ptr(), buffer.nbytes());
  return copy;
}

void DelayedDevice::drop() {
  std::unique_lock lock(mutex_);
  pieces_.clear();
  changed_.wait(lock, [&] { return !is_running_; });
  failed_.reset();
}

void DelayedDevice::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return pieces_.empty() && !is_running_; });
}

}  // namespace troupe::engine
