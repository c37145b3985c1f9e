#include "app/doors.hpp"

#include "app/signals.hpp"
#include "app/transport_options.hpp"
#include "transport/registry.hpp"

namespace troupe::app {

Result<Doors> open_doors(const job::Job& job) {
  auto address = parse_host_port(job.cluster.listen);
  if (!address.ok()) return address.error();
  auto listening = door::listen_at(address.value());
  if (!listening.ok()) return std::move(listening).error();
  auto key = head_key(job.cluster, door::port_of(listening.value()));
  if (!key.ok()) return std::move(key).error();
  if (const auto& offered = key.value().offered) before_leaving([offered] { offered->withdraw(); });
  auto transport =
      transport::create_transport(job.cluster.transport, transport_options(job, job.cluster.nodes));
  if (!transport.ok()) return std::move(transport).error();
  return Doors{std::move(address).value(), std::move(listening).value(), std::move(key).value(),
               std::move(transport).value()};
}

Result<std::shared_ptr<observe::MetricsEndpoint>> open_metrics(const job::Observation& observe) {
  if (observe.metrics_listen.empty()) return std::shared_ptr<observe::MetricsEndpoint>();
  const auto named = [](Error error) {
    error.code = Errc::unavailable;
    error.where = "observe.metrics_listen";
    return error;
  };
  auto address = parse_host_port(observe.metrics_listen);
  if (!address.ok()) return named(address.error());
  // The server does not say why it cannot listen; this does. It is closed again at once.
  if (auto free = door::listen_at(address.value()); !free.ok()) return named(free.error());
  auto endpoint = observe::MetricsEndpoint::listen(address.value());
  return endpoint.ok() ? endpoint : named(endpoint.error());
}

}  // namespace troupe::app
