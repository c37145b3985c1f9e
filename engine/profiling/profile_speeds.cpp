#include "engine/profiling/profile_speeds.hpp"

#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "engine/execution/parameter_shard.hpp"
#include "engine/profiling/median.hpp"
#include "transport/registry.hpp"

namespace troupe::engine {

namespace {

using Clock = std::chrono::steady_clock;
using transport::Transport;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

template <class Run>
double median_ms(int repeats, Run run) {
  std::vector<double> times;
  for (int i = 0; i <= repeats; ++i) {
    const auto begin = Clock::now();
    run();
    if (i > 0) times.push_back(ms_since(begin));
  }
  return median(std::move(times));
}

/// Of work of this thread: repeated where something disturbed it.
template <class Run>
double quiet_ms(QuietWatch& watch, Run run) {
  MeasuredRuns runs({7, 7, 0});
  run();  // Warms up.
  do {
    Reading reading;
    watch.begin(reading);
    const double begin = watch.operator_ms();
    run();
    const double took_ms = watch.operator_ms() - begin;
    watch.end(reading);
    runs.add({took_ms, 0, 0, 0}, reading);
  } while (runs.wants_more(watch));
  return runs.medians(watch).forward_ms;
}

/// Two ends of a link in this process. `transports`: UCX_TLS of the backend `ucx`.
class Link {
 public:
  static Result<Link> open(const char* backend, const char* transports) {
    Link link;
    for (transport::Peer self : {0, 1}) {
      transport::TransportOptions options;
      options.self = self;
      options.ucx.tls = transports;
      options.ucx.net_devices = "lo";
      auto made = transport::create_transport(backend, options);
      if (!made.ok()) return std::move(made).error();
      link.ends_[self] = std::move(made).value();
    }
    for (const int self : {0, 1}) {
      const auto address = link.ends_[1 - self]->address();
      if (auto done = link.ends_[self]->connect(1 - self, address); !done.ok()) return done.error();
    }
    return link;
  }

  /// Milliseconds of one message there and one back.
  Result<double> round_trip_ms(std::size_t bytes, int repeats) {
    std::vector<char> out(bytes, 1), in(bytes);
    Status failed = Done{};
    const double ms = median_ms(repeats, [&] {
      for (const int from : {0, 1}) {
        const auto tag = transport::make_tag(0, transport::TagKind::user, step_++, 0);
        const auto taken = ends_[1 - from]->receive(from, tag, {in.data(), bytes});
        const auto sent = ends_[from]->send(1 - from, tag, {out.data(), bytes});
        for (const auto& operation : {taken, sent})
          if (auto done = operation.wait(transport::within(std::chrono::seconds(10))); !done.ok())
            failed = done;
      }
    });
    if (!failed.ok()) return failed.error();
    return ms;
  }

 private:
  std::unique_ptr<Transport> ends_[2];
  std::uint64_t step_ = 0;
};

Result<scheduler::LinkSpeed> measure_link(const char* backend, const char* transports = "all") {
  constexpr std::size_t kLarge = std::size_t{1} << 22;
  auto link = Link::open(backend, transports);
  if (!link.ok()) return std::move(link).error();
  const auto small = link.value().round_trip_ms(8, 50);
  if (!small.ok()) return small.error();
  const auto large = link.value().round_trip_ms(kLarge, 7);
  if (!large.ok()) return large.error();
  const double way_ms = std::max(1e-6, (large.value() - small.value()) / 2);
  return scheduler::LinkSpeed{small.value() / 2, static_cast<double>(kLarge) / (way_ms * 1e6)};
}

/// Milliseconds of an update of `tensors` parameters of `elements` each, as a stage does it.
double update_ms(const JobSetup& setup, int tensors, std::int64_t elements, QuietWatch& watch) {
  std::vector<models::Parameter> parameters;
  const auto options =
      at::TensorOptions().dtype(setup.layers.dtype).device(setup.layers.device).requires_grad(true);
  for (int i = 0; i < tensors; ++i)
    parameters.push_back({"p" + std::to_string(i), at::randn({elements}, options), false});
  std::vector<models::Parameter*> pointers;
  for (auto& parameter : parameters) pointers.push_back(&parameter);
  ParameterShard state(pointers);
  return quiet_ms(watch, [&] { state.update(setup.adamw, 1, 1e-3, 1); });
}

/// Elements per second, of updates so large that an accelerator takes several times as long for
/// them as for starting one, which takes `small_ms`.
double update_elements_per_s(const JobSetup& setup, int tensors, std::int64_t small,
                             double small_ms, QuietWatch& watch) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 16, kLargest = std::int64_t{1} << 22;
  constexpr double kClearly = 4;
  for (std::int64_t large = kLarge;; large *= 4) {
    const double ms = update_ms(setup, tensors, large, watch);
    if (ms >= kClearly * small_ms || large >= kLargest)
      return static_cast<double>(tensors * (large - small)) * 1000 / std::max(1e-6, ms - small_ms);
  }
}

double reduce_gigabytes_per_s(const JobSetup& setup, QuietWatch& watch) {
  const bool on_host = setup.layers.device.is_cpu();
  const std::int64_t elements = std::int64_t{1} << (on_host ? 20 : 24);  // Much beside a launch.
  const auto type = setup.layers.dtype == at::kDouble ? at::kDouble : at::kFloat;
  const auto options = at::TensorOptions().dtype(type).device(setup.layers.device);
  const at::Tensor sum = at::randn({elements}, options);
  const at::Tensor other = at::randn({elements}, options);
  const double ms = quiet_ms(watch, [&] { sum.add_(other); });
  return static_cast<double>(sum.nbytes()) / (std::max(ms, 1e-6) * 1e6);
}

/// Milliseconds of copying so many bytes to host memory and back, half of them each way.
double host_copy_ms(const JobSetup& setup, std::int64_t bytes, QuietWatch& watch) {
  const bool on_host = setup.layers.device.is_cpu();
  const auto options = at::TensorOptions().dtype(at::kByte);
  const at::Tensor rows = at::zeros({bytes}, options.device(setup.layers.device));
  const at::Tensor host = at::zeros({bytes}, options.pinned_memory(!on_host));
  return quiet_ms(watch,
                  [&] {
                    host.copy_(rows);
                    rows.copy_(host);
                  }) /
         2;
}

scheduler::LinkSpeed measure_host(const JobSetup& setup, QuietWatch& watch) {
  constexpr std::int64_t kSmall = 64, kLarge = std::int64_t{1} << 24;
  const double small = host_copy_ms(setup, kSmall, watch);
  const double large = host_copy_ms(setup, kLarge, watch);
  return {small, static_cast<double>(kLarge) / (std::max(1e-6, large - small) * 1e6)};
}

}  // namespace

Result<scheduler::DeviceSpeeds> measure_speeds(const JobSetup& setup, QuietWatch& watch) {
  // A layer's group has about ten tensors.
  constexpr int kTensors = 10;
  constexpr std::int64_t kSmall = 64;
  scheduler::DeviceSpeeds speeds;
  const auto node = measure_link("inproc");
  const auto machine = measure_link("ucx");
  const auto network = measure_link("ucx", "tcp");
  for (const auto* link : {&node, &machine, &network})
    if (!link->ok()) return link->error();
  speeds.node = node.value();
  speeds.machine = machine.value();
  speeds.network = network.value();
  try {
    const double small = update_ms(setup, kTensors, kSmall, watch);
    speeds.optimizer_elements_per_s = update_elements_per_s(setup, kTensors, kSmall, small, watch);
    speeds.optimizer_group_ms = small;
    speeds.reduce_gigabytes_per_s = reduce_gigabytes_per_s(setup, watch);
    speeds.host = measure_host(setup, watch);
  } catch (const c10::Error& error) {
    return Error{Errc::internal, "LibTorch: " + error.msg(), "profile", {}};
  }
  return speeds;
}

}  // namespace troupe::engine
