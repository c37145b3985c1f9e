// Observers of one's own: what modules compute and what steps come to, shown while a job trains.
//
// An observer influences nothing: it sees copies, on a thread of its own, behind a queue that drops
// what does not fit. What it throws ends it, not the job. Each node process has its own instance,
// which sees what is computed there.
//
// Who writes one includes this page alone, and registers it (runtime/plugins/entry_point.hpp). A
// job asks for it:
//
//   [[observe.observers]]
//   name = "statistics"

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/vocabulary/model_config.hpp"
#include "runtime/vocabulary/result.hpp"
#include "runtime/vocabulary/units.hpp"

namespace troupe::observers {

/// What is shown of a module.
enum class Kind : std::uint8_t {
  rows,       ///< Its output: what its last layer gives to the next module.
  gradients,  ///< The gradient of the step's loss by that output; frozen modules have none.
  losses,     ///< Of the llm: a value per sample, the sum of its token losses.
};

/// Numbers in the type in which they were computed.
class Values {
 public:
  Values() = default;
  /// `owner` keeps `data` alive.
  Values(std::shared_ptr<const void> owner, const void* data, std::size_t size, Dtype dtype)
      : owner_(std::move(owner)), data_(data), size_(size), dtype_(dtype) {}

  std::size_t size() const { return size_; }  ///< How many.
  Dtype dtype() const { return dtype_; }      ///< Of each, as it was computed.
  const void* data() const { return data_; }  ///< `size` of them, one behind the other.
  /// One of them, widened. REQUIRES: index < size.
  double operator[](std::size_t index) const;

 private:
  std::shared_ptr<const void> owner_;
  const void* data_ = nullptr;
  std::size_t size_ = 0;
  Dtype dtype_ = Dtype::fp32;
};

/// What a module computed for a part of a microbatch.
struct Observed {
  std::int64_t step = 0;
  std::string module;
  Kind kind = Kind::rows;
  std::int32_t replica = 0;  ///< By its place in plan.json.
  std::int32_t microbatch = 0;
  std::int32_t part = 0;
  /// Of the samples that have rows, in the order of their rows. An encoder may take a sample in
  /// pieces (`balancer.items`), in several parts or replicas: its id is there for each.
  std::vector<std::string> ids;
  std::vector<std::int64_t> rows;  ///< Of each of them.
  std::vector<std::int64_t>
      first_rows;          ///< Rows that its sample has before these; 0 but in pieces.
  std::int64_t width = 0;  ///< Values per row; 1 for losses.
  Values values;           ///< [sum of rows, width], row by row.
};

/// The word on a step. It comes after all that the step showed.
struct ObservedStep {
  std::int64_t step = 0;
  bool committed = false;  ///< Else it changed nothing.
  double loss = 0;
  double grad_norm = 0;
  double learning_rate = 0;
  TokenCount tokens = 0;
  TokenCount trained_tokens = 0;
  std::vector<std::string> ids;  ///< Samples in training order.
};

/// Called by one thread. A step that is repeated, as after a lost node, is shown again.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void see(const Observed&) {}      ///< Part by part, as they were computed.
  virtual void see(const ObservedStep&) {}  ///< Once per step.
  /// Nothing comes any more. It has two seconds.
  virtual void end() {}
};

/// Where an observer works.
struct Place {
  std::string job;
  std::int32_t node = 0;
  /// RUN/observers/NAME: exists, and is shared by the observers of all nodes that share the run
  /// folder; name files by node. A job that goes on finds what it wrote before.
  std::filesystem::path folder;
  std::string options;  ///< `options` of the job file.
};
/// An observer that jobs may ask for.
struct ObserverKind {
  std::string name;  ///< As the job file says it: small letters, digits, `-` and `_`.
  /// Throws where it cannot be.
  std::function<std::unique_ptr<Observer>(const Place&)> make;
};

/// Adds an observer for the rest of the process. Call it before a job is read. Thread-safe.
/// Errors: invalid_argument: a name that is taken or not spelled so, or no function.
Status register_observer(ObserverKind kind);

/// In the order in which they came; none is built in.
std::vector<std::string> observer_names();

/// nullptr: none is called so.
const ObserverKind* find_observer(const std::string& name);

}  // namespace troupe::observers
