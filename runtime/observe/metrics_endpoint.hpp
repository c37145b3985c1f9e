// What Prometheus scrapes from a running job: the figures of its last step, over HTTP.
//
// Thread-safe: a job tells, threads of its own answer. Nothing of the job waits for a scraper.

#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "runtime/observe/run_event.hpp"
#include "runtime/observe/step_metrics.hpp"
#include "runtime/vocabulary/host_port.hpp"
#include "runtime/vocabulary/result.hpp"

namespace troupe::observe {

/// Answers `GET /metrics`. Units are those of Prometheus: seconds, bytes, ratios. A figure that is
/// not known (the peak of a device, a checkpoint where there is none yet) is not there; before the
/// first step there is none but the checkpoint's. Counters (`_total`) count from the beginning of
/// the process, not of a run that it goes on with.
class MetricsEndpoint {
 public:
  using Time = std::chrono::system_clock::time_point;

  /// Answers there from now on; port 0: at any free one.
  /// Errors: unavailable: it cannot listen there.
  static Result<std::shared_ptr<MetricsEndpoint>> listen(const HostPort& address);
  ~MetricsEndpoint();
  MetricsEndpoint(const MetricsEndpoint&) = delete;
  MetricsEndpoint& operator=(const MetricsEndpoint&) = delete;

  std::uint16_t port() const;

  /// A step has ended.
  void show(const StepMetrics& metrics);
  /// Something happened: of a checkpoint, its age counts from now on.
  void show(const RunEvent& event);
  /// The newest checkpoint was complete then.
  void show_checkpoint(Time complete);

 private:
  class Figures;
  class Server;

  MetricsEndpoint(std::shared_ptr<Figures> figures, std::unique_ptr<Server> server);

  std::shared_ptr<Figures> figures_;
  std::unique_ptr<Server> server_;  // After the figures that it asks for.
};

}  // namespace troupe::observe
