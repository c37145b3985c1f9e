#include "runtime/observe/metrics_endpoint.hpp"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::observe {

namespace {

using Families = std::vector<prometheus::MetricFamily>;

void add_gauge(Families& families, const char* name, const char* help, double value) {
  prometheus::ClientMetric metric;
  metric.gauge.value = value;
  families.push_back({name, help, prometheus::MetricType::Gauge, {std::move(metric)}});
}

void add_counter(Families& families, const char* name, const char* help, double value) {
  prometheus::ClientMetric metric;
  metric.counter.value = value;
  families.push_back({name, help, prometheus::MetricType::Counter, {std::move(metric)}});
}

void add_memory(Families& families, const StepMetrics& step) {
  prometheus::MetricFamily memory{"troupe_memory_bytes",
                                  "Most on one device in the last step, by what it holds",
                                  prometheus::MetricType::Gauge,
                                  {}};
  for (const auto& [kind, bytes] : {std::pair{"activations", step.activation_bytes},
                                    {"activations_promised", step.promised_activation_bytes},
                                    {"held_rows", step.held_bytes}}) {
    prometheus::ClientMetric metric;
    metric.label = {{"kind", kind}};
    metric.gauge.value = static_cast<double>(bytes.count());
    memory.metric.push_back(std::move(metric));
  }
  families.push_back(std::move(memory));
}

void add_step(Families& families, const StepMetrics& step) {
  const auto gauge = [&](const char* name, const char* help, double value) {
    add_gauge(families, name, help, value);
  };
  gauge("troupe_step", "The last step that ended", static_cast<double>(step.step));
  gauge("troupe_loss", "Mean over the trained tokens of the last step", step.loss);
  gauge("troupe_learning_rate", "Of the last step", step.lr);
  gauge("troupe_gradient_norm", "Of the last step, before clipping", step.grad_norm);
  gauge("troupe_step_seconds", "From the end of the step before the last to its end",
        step.step_ms / 1000);
  gauge("troupe_tokens_per_second", "Of the llm in the last step, media rows included",
        step.tokens_per_s());
  if (step.work.flops > 0)
    gauge("troupe_tflops_per_device", "Model FLOPs of the last step per second and device, 10^12",
          step.tflops_per_device());
  if (step.mfu() > 0)
    gauge("troupe_mfu_ratio", "The same as a share of the device's peak", step.mfu());
  gauge("troupe_bubble_ratio", "Idle share of stage time in the last step", step.bubble);
  gauge("troupe_imbalance_ratio", "Largest over mean stage work in the last step", step.imbalance);
  gauge("troupe_data_wait_seconds", "What the last step waited for data", step.data_wait_ms / 1000);
  gauge("troupe_checkpoint_stall_seconds", "What the last step waited for a checkpoint",
        step.checkpoint_stall_ms / 1000);
  gauge("troupe_nodes", "Nodes of the job", step.nodes);
  gauge("troupe_generation", "Of the configuration; rises with every change of it",
        static_cast<double>(step.epoch_number));
  gauge("troupe_skipped_steps", "Steps of the run so far that left the parameters alone",
        static_cast<double>(step.skipped_steps));
  gauge("troupe_bad_samples", "Different samples of the run so far that were dropped",
        static_cast<double>(step.bad_samples));
  add_memory(families, step);
}

}  // namespace

/// What is known now; made into text when somebody asks.
class MetricsEndpoint::Figures : public prometheus::Collectable {
 public:
  void add(const StepMetrics& metrics) {
    const std::scoped_lock lock(mutex_);
    last_ = metrics;
    ++steps_;
    tokens_ += metrics.tokens;
    samples_ += metrics.samples;
  }

  void set_checkpoint(Time complete) {
    const std::scoped_lock lock(mutex_);
    checkpoint_ = complete;
  }

  Families Collect() const override {
    const std::scoped_lock lock(mutex_);
    Families families;
    if (last_) add_step(families, *last_);
    if (last_) {
      add_counter(families, "troupe_steps_total", "Steps of this process",
                  static_cast<double>(steps_));
      add_counter(families, "troupe_tokens_total", "Tokens of the llm in these steps",
                  static_cast<double>(tokens_));
      add_counter(families, "troupe_samples_total", "Samples in these steps",
                  static_cast<double>(samples_));
    }
    if (checkpoint_) {
      const std::chrono::duration<double> age = std::chrono::system_clock::now() - *checkpoint_;
      // Clocks of machines that share a disk differ.
      add_gauge(families, "troupe_checkpoint_age_seconds",
                "Since the newest checkpoint was complete", std::max(age.count(), 0.0));
    }
    return families;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<StepMetrics> last_;
  std::optional<Time> checkpoint_;
  std::int64_t steps_ = 0;
  TokenCount tokens_ = 0;
  std::int64_t samples_ = 0;
};

class MetricsEndpoint::Server {
 public:
  Server(const std::string& address, const std::shared_ptr<Figures>& figures) : exposer_(address) {
    exposer_.RegisterCollectable(figures);
  }
  int port() const { return exposer_.GetListeningPorts().at(0); }

 private:
  prometheus::Exposer exposer_;
};

Result<std::shared_ptr<MetricsEndpoint>> MetricsEndpoint::listen(const HostPort& address) {
  const std::string host = address.is_any() ? "0.0.0.0" : address.host;
  auto figures = std::make_shared<Figures>();
  try {
    auto server = std::make_unique<Server>(host + ":" + std::to_string(address.port), figures);
    return std::shared_ptr<MetricsEndpoint>(
        new MetricsEndpoint(std::move(figures), std::move(server)));
  } catch (const std::exception& thrown) {  // The server's own exception says no more.
    return Error{Errc::unavailable, "cannot listen on " + address.text() + ": " + thrown.what(),
                 address.text(),
                 "use an address of this machine and a free port; port 0 takes any"};
  }
}

MetricsEndpoint::MetricsEndpoint(std::shared_ptr<Figures> figures, std::unique_ptr<Server> server)
    : figures_(std::move(figures)), server_(std::move(server)) {}

MetricsEndpoint::~MetricsEndpoint() = default;

std::uint16_t MetricsEndpoint::port() const { return static_cast<std::uint16_t>(server_->port()); }

void MetricsEndpoint::show(const StepMetrics& metrics) { figures_->add(metrics); }

void MetricsEndpoint::show(const RunEvent& event) {
  if (event.kind == "checkpoint") show_checkpoint(std::chrono::system_clock::now());
}

void MetricsEndpoint::show_checkpoint(Time complete) { figures_->set_checkpoint(complete); }

}  // namespace troupe::observe
