// What there is of a kind that plug-ins add to: model families, microbatch policies, data formats.

#pragma once

#include <algorithm>
#include <deque>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// Small letters, digits, `-` and `_`, one at least: what a job file may call such a thing.
inline bool is_list_name(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

/// A list that only grows, by entries with a `name` of their own. Thread-safe; an entry stays where
/// it is as long as the list.
template <class Entry>
class NamedList {
 public:
  NamedList() = default;
  explicit NamedList(std::vector<Entry> first) {
    for (auto& entry : first) entries_.push_back(std::move(entry));
  }

  /// False: the name is taken, and nothing was added.
  bool add(Entry entry) {
    const std::lock_guard lock(mutex_);
    if (find_locked(entry.name) != nullptr) return false;
    entries_.push_back(std::move(entry));
    return true;
  }

  /// nullptr where nothing is called so.
  const Entry* find(std::string_view name) const {
    const std::lock_guard lock(mutex_);
    return find_locked(name);
  }

  /// In the order in which they came.
  std::vector<const Entry*> all() const {
    const std::lock_guard lock(mutex_);
    std::vector<const Entry*> list;
    for (const Entry& entry : entries_) list.push_back(&entry);
    return list;
  }

 private:
  const Entry* find_locked(std::string_view name) const {
    const auto found = std::ranges::find(entries_, name, &Entry::name);
    return found == entries_.end() ? nullptr : &*found;
  }

  mutable std::mutex mutex_;
  std::deque<Entry> entries_;  // Its elements never move.
};

}  // namespace troupe
