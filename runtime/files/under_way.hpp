// A list of what threads have begun and have not done with, of which the oldest may never end.

#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace troupe::files {

/// Thread-safe; nobody here measures time. `Entry` has a `number`, counted from 1: two entries of
/// the same words are told apart by it.
template <class Entry>
class UnderWay {
 public:
  /// Returns the number that the entry has now.
  std::int64_t begin(Entry entry) {
    const std::lock_guard lock(mutex_);
    const std::int64_t number = entry.number = ++begun_;
    entries_.emplace(number, std::move(entry));
    return number;
  }

  /// The entry of this number, which is there, becomes the youngest. Returns its new number.
  std::int64_t begin_anew(std::int64_t number) {
    const std::lock_guard lock(mutex_);
    auto node = entries_.extract(number);
    number = node.key() = node.mapped().number = ++begun_;
    entries_.insert(std::move(node));
    return number;
  }

  void end(std::int64_t number) {
    const std::lock_guard lock(mutex_);
    entries_.erase(number);
  }

  /// None where nothing is under way.
  std::optional<Entry> oldest() const {
    const std::lock_guard lock(mutex_);
    if (entries_.empty()) return std::nullopt;
    return entries_.begin()->second;
  }

 private:
  mutable std::mutex mutex_;
  std::int64_t begun_ = 0;
  std::map<std::int64_t, Entry> entries_;  ///< By number: the first is the oldest.
};

}  // namespace troupe::files
