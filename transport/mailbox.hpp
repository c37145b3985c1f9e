// Brings receives and messages together: each waits here until the other comes.
//
// Not thread-safe; pure bookkeeping that moves no bytes and completes nothing, so a backend can do
// both outside its locks. `Payload` is how a backend holds a message that has arrived; it has
// `copied_bytes()`, the memory that the wait costs.

#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/links.hpp"
#include "transport/operation.hpp"
#include "transport/transport.hpp"

namespace troupe::transport {

/// A receive that waits, or is being filled.
struct Posted {
  Tag tag;
  MutableBuffer buffer;
  Completion completion;
};

template <class Payload>
class Mailbox {
 public:
  /// Everything that a link or an old epoch leaves behind.
  struct Remains {
    std::vector<Posted> receives;
    std::vector<Payload> messages;

    std::int64_t receive_bytes() const {
      std::int64_t sum = 0;
      for (const auto& receive : receives) sum += static_cast<std::int64_t>(receive.buffer.bytes);
      return sum;
    }
  };

  /// A receive comes: returns the oldest message that waits for it, else keeps the receive.
  /// `receive` is moved from only when it is kept.
  std::optional<Payload> post(Link link, Posted& receive) {
    auto& slot = slots_[{link, receive.tag}];
    if (slot.messages.empty()) {
      slot.receives.push_back(std::move(receive));
      return std::nullopt;
    }
    Payload message = std::move(slot.messages.front());
    slot.messages.pop_front();
    copied_bytes_ -= message.copied_bytes();
    if (slot.empty()) slots_.erase({link, receive.tag});
    return message;
  }

  /// A message comes: returns the oldest receive that waits for it.
  std::optional<Posted> match(Link link, const Tag& tag) {
    const auto found = slots_.find({link, tag});
    if (found == slots_.end() || found->second.receives.empty()) return std::nullopt;
    auto& slot = found->second;
    Posted receive = std::move(slot.receives.front());
    slot.receives.pop_front();
    if (slot.empty()) slots_.erase(found);
    return receive;
  }

  /// Keeps a message for which no receive waits. REQUIRES: `match` has just found none.
  void keep(Link link, const Tag& tag, Payload message) {
    copied_bytes_ += message.copied_bytes();
    slots_[{link, tag}].messages.push_back(std::move(message));
  }

  /// Takes back a receive that still waits.
  std::optional<Posted> withdraw(Link link, const Tag& tag, const Completion& completion) {
    const auto found = slots_.find({link, tag});
    if (found == slots_.end()) return std::nullopt;
    auto& receives = found->second.receives;
    for (auto it = receives.begin(); it != receives.end(); ++it) {
      if (it->completion != completion) continue;
      Posted receive = std::move(*it);
      receives.erase(it);
      if (found->second.empty()) slots_.erase(found);
      return receive;
    }
    return std::nullopt;
  }

  /// Takes out everything of one link.
  Remains take_link(Link link) {
    return take([link](const Key& key, const Slot&) { return key.link == link; });
  }

  /// Takes out everything of epochs before `epoch`.
  Remains take_older_than(EpochNumber epoch) {
    return take([epoch](const Key& key, const Slot&) { return key.tag.epoch < epoch; });
  }

  /// Takes out the messages, not the receives, of a link's epochs before `epoch`.
  std::vector<Payload> take_messages_older_than(Link link, EpochNumber epoch) {
    const auto belongs = [&](const Key& key, const Slot& slot) {
      return key.link == link && key.tag.epoch < epoch && slot.receives.empty();
    };
    return take(belongs).messages;
  }

  Remains take_all() {
    return take([](const Key&, const Slot&) { return true; });
  }

  /// Bytes held by messages that wait.
  std::int64_t copied_bytes() const { return copied_bytes_; }

 private:
  struct Key {
    Link link;
    Tag tag;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const noexcept {
      // Multiplying by odd constants spreads counters that differ in their low bits.
      auto hash = std::hash<Link>{}(key.link);
      hash = hash * 0x9E3779B97F4A7C15u + key.tag.index;
      hash = hash * 0x9E3779B97F4A7C15u + key.tag.step;
      hash = hash * 0x9E3779B97F4A7C15u + static_cast<std::size_t>(key.tag.kind);
      return hash * 0x9E3779B97F4A7C15u + key.tag.epoch;
    }
  };
  /// One of the two is empty; most slots hold a single entry and die with it.
  struct Slot {
    std::deque<Posted> receives;
    std::deque<Payload> messages;
    bool empty() const { return receives.empty() && messages.empty(); }
  };

  template <class Predicate>
  Remains take(Predicate belongs) {
    Remains remains;
    for (auto it = slots_.begin(); it != slots_.end();) {
      if (!belongs(it->first, it->second)) {
        ++it;
        continue;
      }
      for (auto& receive : it->second.receives) remains.receives.push_back(std::move(receive));
      for (auto& message : it->second.messages) {
        copied_bytes_ -= message.copied_bytes();
        remains.messages.push_back(std::move(message));
      }
      it = slots_.erase(it);
    }
    return remains;
  }

  std::unordered_map<Key, Slot, Hash> slots_;
  std::int64_t copied_bytes_ = 0;
};

}  // namespace troupe::transport
