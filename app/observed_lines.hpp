// What `troupe observe` prints: a line for each part of a microbatch and for each step, at once.

#pragma once

#include "app/watch.hpp"
#include "runtime/observers/observer.hpp"

namespace troupe::app {

/// Names of `observers::Kind`, in its order.
inline constexpr const char* kKinds[] = {"rows", "gradients", "losses"};

class ObservedLines final : public observers::Observer {
 public:
  /// `json`: objects. `values`: with all numbers.
  ObservedLines(bool json, bool values) : json_(json), values_(values) {}

  void see(const observers::Observed& part) override;
  void see(const observers::ObservedStep& step) override;

 private:
  bool json_, values_;
};

/// The last line: how it ended.
void print_end(const Watched& watched, bool json);

}  // namespace troupe::app
