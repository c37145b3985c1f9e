// Forwards to a transport and holds every send back for a random time, so that messages leave and
// arrive out of order.

#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "transport/transport.hpp"

namespace troupe::transport::testing {

class DelayedTransport final : public Transport {
 public:
  /// `seed` 0: no delay.
  DelayedTransport(Transport& inner, std::uint64_t seed)
      : inner_(inner), random_(static_cast<unsigned>(seed)) {
    if (seed != 0) thread_ = std::thread([this] { run(); });
  }
  ~DelayedTransport() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  Peer self() const override { return inner_.self(); }
  std::vector<std::byte> address() const override { return inner_.address(); }
  Status connect(Peer peer, std::span<const std::byte> address) override {
    return inner_.connect(peer, address);
  }
  Operation receive(Peer peer, const Tag& tag, MutableBuffer data) override {
    return inner_.receive(peer, tag, std::move(data));
  }
  void disconnect(Peer peer, Error why) override { inner_.disconnect(peer, std::move(why)); }
  void drop_older_than(EpochNumber epoch) override { inner_.drop_older_than(epoch); }
  void on_peer_failure(PeerFailureHandler) override {}

  Operation send(Peer peer, const Tag& tag, ConstBuffer data) override {
    if (!thread_.joinable()) return inner_.send(peer, tag, std::move(data));
    const auto completion = Completion::pending();
    {
      const std::lock_guard lock(mutex_);
      const auto delay = std::chrono::microseconds(random_() % 2000);
      held_.emplace(within(std::chrono::milliseconds(0)) + delay,
                    [this, peer, tag, data, completion] {
                      inner_.send(peer, tag, data).on_done([completion](const Status& status) {
                        completion.complete(status);
                      });
                    });
    }
    changed_.notify_one();
    return completion.operation();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!stopping_ || !held_.empty()) {
      if (held_.empty()) {
        changed_.wait(lock);
        continue;
      }
      const auto due = held_.begin()->first;
      if (!stopping_ && std::chrono::steady_clock::now() < due) {
        changed_.wait_until(lock, due);
        continue;
      }
      const auto send = std::move(held_.extract(held_.begin()).mapped());
      lock.unlock();
      send();
      lock.lock();
    }
  }

  Transport& inner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937 random_;
  std::multimap<Deadline, std::function<void()>> held_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace troupe::transport::testing
