#include "engine/execution/accelerator.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <pthread.h>

#include <chrono>
#include <exception>
#include <utility>

#include "engine/execution/device_errors.hpp"

namespace troupe::engine {

namespace {

constexpr std::chrono::microseconds kLook{20};

}  // namespace

Accelerator::Accelerator(const DeviceOptions& options)
    : place_(options.place),
      copies_(options.place),
      launcher_([this, options] { launch_pieces(options); }),
      completer_([this] { complete_pieces(); }) {}

Accelerator::~Accelerator() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    waiting_.clear();
  }
  changed_.notify_all();
  launcher_.join();
  completer_.join();
}

std::shared_ptr<const Launch> Accelerator::launch(Work work, std::function<void()> on_done) {
  Piece piece;
  piece.work = std::move(work);
  piece.on_done = std::move(on_done);
  piece.launch = std::make_shared<Launch>();
  auto launch = piece.launch;
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(piece));
  }
  changed_.notify_all();
  return launch;
}

void Accelerator::launch_pieces(const DeviceOptions& options) {
  at::set_num_threads(options.threads);
  pthread_setname_np(pthread_self(), "launcher");
  const Status entered = enter();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stops_ || !waiting_.empty(); });
    if (stops_) return;
    Piece piece = std::move(waiting_.front());
    waiting_.pop_front();
    is_launching_ = true;
    if (failed_) piece.status = *failed_;
    if (!entered.ok()) piece.status = entered;  // Also behind a drop.
    lock.unlock();
    if (piece.status.ok()) run(piece);
    lock.lock();
    is_launching_ = false;
    if (!piece.status.ok()) failed_ = piece.status.error();
    launched_.push_back(std::move(piece));
    changed_.notify_all();
  }
}

/// Makes the device the calling thread's: what LibTorch does without saying where is done there.
Status Accelerator::enter() const {
  try {
    c10::impl::VirtualGuardImpl(place_.type()).setDevice(place_);
    return Done{};
  } catch (const std::exception& thrown) {
    return device_failure(thrown);
  }
}

std::function<void()> Accelerator::entry() const {
  return [place = place_] {
    try {
      c10::impl::VirtualGuardImpl(place.type()).setDevice(place);
    } catch (const std::exception&) {  // The device's own threads find the same, and say so.
    }
  };
}

MemoryKind Accelerator::memory() const {
  return place_.is_cuda() ? MemoryKind::cuda : MemoryKind::other;
}

void Accelerator::run(Piece& piece) {
  try {
    piece.status = piece.launch->begin(piece.work);
    piece.event.emplace(place_.type());
    piece.event->record(c10::impl::VirtualGuardImpl(place_.type()).getStream(place_));
  } catch (const std::exception& thrown) {
    piece.status = device_failure(thrown);
    piece.is_device_lost = is_device_lost(thrown);
  }
  piece.kept = std::exchange(kept_, {});
}

void Accelerator::complete_pieces() {
  pthread_setname_np(pthread_self(), "completer");
  static_cast<void>(enter());  // Where it fails the launcher says so, of each piece.
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !launched_.empty() || (stops_ && !is_launching_); });
    if (launched_.empty()) return;
    Piece piece = std::move(launched_.front());
    launched_.pop_front();
    is_completing_ = true;
    lock.unlock();
    try {
      // Waiting inside would keep a core busy.
      while (piece.event && !piece.event->query()) std::this_thread::sleep_for(kLook);
    } catch (const std::exception& thrown) {
      if (piece.status.ok()) piece.status = device_failure(thrown);
      piece.is_device_lost = piece.is_device_lost || is_device_lost(thrown);
    }
    const bool is_lost = piece.is_device_lost;
    const auto launch = std::move(piece.launch);
    const auto on_done = std::move(piece.on_done);
    Status status = std::move(piece.status);
    piece = {};  // What it kept is let go of before anybody hears that nothing is under way.
    lock.lock();
    if (!status.ok() && !failed_) failed_ = status.error();
    lock.unlock();
    launch->complete(std::move(status), is_lost);
    lock.lock();
    is_completing_ = false;
    changed_.notify_all();
    lock.unlock();
    on_done();
    lock.lock();
  }
}

at::Tensor Accelerator::host_buffer(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::empty(shape, at::TensorOptions(dtype).pinned_memory(true));
}

at::Tensor Accelerator::to_host(at::Tensor tensor) {
  at::Tensor host = host_buffer(tensor.sizes(), tensor.scalar_type());
  host.copy_(tensor, true);
  kept_.push_back(std::move(tensor));
  return host;
}

void Accelerator::write_to_host(at::Tensor tensor, at::Tensor host) {
  host.copy_(tensor, true);
  kept_.push_back(std::move(tensor));
  kept_.push_back(std::move(host));
}

at::Tensor Accelerator::to_device(at::Tensor buffer) {
  at::Tensor tensor = buffer.to(place_, true);
  kept_.push_back(std::move(buffer));
  return tensor;
}

at::Tensor Accelerator::bring(at::Tensor buffer) {
  at::Tensor tensor = copies_.in(buffer);
  kept_.push_back(std::move(buffer));
  return tensor;
}

std::shared_ptr<const Launch> Accelerator::copy_out(at::Tensor tensor, at::Tensor host,
                                                    std::function<void()> on_done) {
  return copies_.out(std::move(tensor), std::move(host), std::move(on_done));
}

void Accelerator::drop() {
  copies_.drop();
  std::unique_lock lock(mutex_);
  waiting_.clear();
  changed_.wait(lock, [&] { return !is_launching_ && launched_.empty() && !is_completing_; });
  failed_.reset();
}

void Accelerator::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return waiting_.empty() && !is_launching_ && launched_.empty() && !is_completing_;
  });
}

}  // namespace troupe::engine
