#include "transport/ucx/event_loop.hpp"

#include <pthread.h>

#include <algorithm>
#include <map>
#include <utility>  // Boost 1.74 needs it before asio.hpp in C++20.

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

namespace troupe::transport {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

constexpr auto kTickSoon = std::chrono::milliseconds(100);
constexpr auto kTick = std::chrono::seconds(1);
/// After so many rounds the loop returns to Asio, so that timers and watches run even while
/// `arm` reports pending events for ever, as it does with sends to a stopped peer, or with
/// connections to one that has no time for them.
constexpr int kRoundsMax = 256;
/// Where nothing moved in all of them the loop rests before it looks again: the core it would
/// keep busy may be the one that the other side waits for. Twice as long each time.
constexpr auto kRestMin = std::chrono::microseconds(50), kRestMax = std::chrono::microseconds(2000);

}  // namespace

struct EventLoop::Io {
  struct Source {
    asio::posix::stream_descriptor events;
    bool waiting = false;
  };
  Io() : tick(context), rest(context) {}
  asio::io_context context{1};
  std::map<int, Source> sources;
  asio::steady_timer tick, rest;
  std::map<int, asio::posix::stream_descriptor> watches;
};

EventLoop::EventLoop(Client& client, int event_fd, std::chrono::microseconds spin)
    : client_(client), spin_(spin), rest_(kRestMin), io_(std::make_unique<Io>()) {
  add_events(event_fd);
  drive_later();
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "transport");
    schedule_tick();
    io_->context.run();
  });
}

EventLoop::~EventLoop() = default;

bool EventLoop::post(std::function<void()> command) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    commands_.push_back(std::move(command));
  }
  has_commands_.store(true);
  if (!awake_.exchange(true)) drive_later();
  return true;
}

void EventLoop::stop(std::function<void()> last) {
  post([this, last = std::move(last)] {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    last();
    stopped_ = true;
    while (!io_->sources.empty()) remove_events(io_->sources.begin()->first);
    io_->tick.cancel();
    io_->rest.cancel();
    io_->watches.clear();
  });
  thread_.join();
}

void EventLoop::drive_later() {
  asio::post(io_->context, [this] { drive(); });
}

void EventLoop::drive() {
  bool has_moved = false;
  for (int round = 0; round < kRoundsMax; ++round) {
    bool moved = run_commands();
    if (stopped_) return;
    moved |= client_.progress();
    if (moved) {
      has_moved = true;
      rest_ = kRestMin;
      last_moved_ = Clock::now();
      continue;
    }
    if (spins()) continue;
    if (try_to_sleep()) return;
  }
  has_moved || spins() ? drive_later() : rest();
}

bool EventLoop::spins() const {
  return Clock::now() - last_moved_ < spin_ && client_.expects_more();
}

/// A command ends it, and the network's events wait until it is over.
void EventLoop::rest() {
  awake_.store(false);
  if (has_commands_.load()) {
    awake_.store(true);
    return drive_later();
  }
  io_->rest.expires_after(rest_);
  rest_ = std::min(2 * rest_, kRestMax);
  io_->rest.async_wait([this](const boost::system::error_code& error) {
    if (error || stopped_) return;
    awake_.store(true);
    drive();
  });
}

bool EventLoop::run_commands() {
  if (!has_commands_.load(std::memory_order_acquire)) return false;
  {
    const std::lock_guard lock(mutex_);
    has_commands_.store(false);
    running_.swap(commands_);
  }
  for (const auto& command : running_) command();
  const bool any = !running_.empty();
  running_.clear();
  return any;
}

bool EventLoop::try_to_sleep() {
  awake_.store(false);
  // A command posted before the store saw an awake loop and did not wake it: look again. One
  // posted after it sees `false` and wakes the loop.
  if (has_commands_.load() || !client_.arm()) {
    awake_.store(true);
    return false;
  }
  wait_for_events();
  return true;
}

void EventLoop::wait_for_events() {
  for (auto& [fd, source] : io_->sources) {
    if (source.waiting) continue;  // Since an earlier sleep, which another event has ended.
    source.waiting = true;
    source.events.async_wait(asio::posix::stream_descriptor::wait_read,
                             [this, &waiting = source.waiting](const boost::system::error_code& e) {
                               if (e) return;  // Removed, and `waiting` with it.
                               waiting = false;
                               awake_.store(true);
                               if (!stopped_) drive();
                             });
  }
}

void EventLoop::add_events(int fd) {
  io_->sources.try_emplace(fd, Io::Source{asio::posix::stream_descriptor(io_->context, fd)});
}

void EventLoop::remove_events(int fd) {
  const auto found = io_->sources.find(fd);
  if (found == io_->sources.end()) return;
  found->second.events.release();  // The worker owns it, and may be destroyed before this.
  io_->sources.erase(found);
}

void EventLoop::schedule_tick() {
  io_->tick.expires_after(ticks_soon_ ? Clock::duration(kTickSoon) : Clock::duration(kTick));
  io_->tick.async_wait([this](const boost::system::error_code& error) {
    if (error || stopped_) return;
    ticks_soon_ = client_.tick();
    schedule_tick();
    awake_.store(true);
    drive();
  });
}

void EventLoop::tick_soon() {
  if (std::exchange(ticks_soon_, true)) return;
  schedule_tick();
}

void EventLoop::watch(int fd, std::function<void()> on_readable) {
  auto [entry, is_new] = io_->watches.try_emplace(fd, io_->context, fd);
  entry->second.async_wait(
      asio::posix::stream_descriptor::wait_read,
      [this, fd, on_readable = std::move(on_readable)](const boost::system::error_code& error) {
        if (error) return;
        io_->watches.erase(fd);
        on_readable();
        awake_.store(true);
        drive();
      });
}

void EventLoop::unwatch(int fd) { io_->watches.erase(fd); }

}  // namespace troupe::transport
