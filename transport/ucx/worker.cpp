#include "transport/ucx/worker.hpp"

#include <string>
#include <utility>

#include "transport/ucx/log.hpp"
#include "transport/ucx/status.hpp"

namespace troupe::transport {
namespace {

/// Buffers of a channel. Large messages travel through them piece by piece, and each piece can cost
/// a wake-up of the peer, which a longer piece saves; together they are about 4 MiB.
constexpr std::size_t kSegmentBytes = std::size_t{32} << 10;
constexpr std::size_t kSegments = 128;

struct ReleaseConfig {
  void operator()(ucp_config_t* config) const { ucp_config_release(config); }
};
using Config = std::unique_ptr<ucp_config_t, ReleaseConfig>;

Result<Config> make_config(const UcxSettings& options) {
  ucp_config_t* raw = nullptr;
  if (auto status = ucp_config_read(nullptr, nullptr, &raw); status != UCS_OK) {
    return ucx_error("ucp_config_read", status);
  }
  Config config(raw);
  std::vector<std::pair<const char*, std::string>> settings{
      {"TLS", options.tls},
      {"NET_DEVICES", options.net_devices},
      {"KEEPALIVE_INTERVAL", std::to_string(options.keepalive.count()) + "ms"},
  };
  // Without it shared memory cannot report a dead peer, and UCX would not take it. Where no such
  // transport is in use, UCX would print a warning about it.
  if (options.shared_memory) {
    settings.emplace_back("MM_ERROR_HANDLING", "y");
    settings.emplace_back("MM_SEG_SIZE", std::to_string(kSegmentBytes));
    settings.emplace_back("MM_RX_BUFS_GROW", std::to_string(kSegments));
  } else {
    // While UCX waits for a host that does not answer, the worker serves nobody; and where a peer
    // refuses at once, its endpoint's socket is never closed. UCX 1.13 takes the name without the
    // prefix that it lists, and warns of the other one.
    for (const char* key : {"CONN_NB", "TCP_CONN_NB"}) settings.emplace_back(key, "y");
  }
  for (const auto& [key, value] : settings) {
    if (ucp_config_modify(config.get(), key, value.c_str()) != UCS_OK) {
      return Error{Errc::invalid_argument,
                   std::string("UCX does not take ") + key + " = '" + value + "'", "",
                   "see `ucx_info -c` for the values it knows"};
    }
  }
  return config;
}

}  // namespace

std::string reason_of(ucs_status_t status) {
  std::string reason = ucs_status_string(status);
  if (const auto message = take_ucx_message(); !message.empty()) reason += " (" + message + ")";
  return reason;
}

Error ucx_error(std::string_view call, ucs_status_t status) {
  return {Errc::transport_failed, std::string(call) + " failed: " + reason_of(status), "", ""};
}

Result<UcxContext> start_ucx(const UcxSettings& settings) {
  take_over_ucx_log();
  auto config = make_config(settings);
  if (!config) return std::move(config).error();

  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  ucp_context_h raw = nullptr;
  const auto status = ucp_init(&params, config.value().get(), &raw);
  if (status != UCS_OK) {
    auto error = ucx_error("starting UCX", status);
    error.message += " (transports '" + settings.tls + "', devices '" + settings.net_devices + "')";
    error.fix = "name transports and devices that `ucx_info -d` lists";
    return error;
  }
  UcxContext context(raw, ucp_cleanup);
  // UCX goes on without a device or transport that is not there, and peers are out of reach later.
  if (const auto message = take_ucx_message(); message.find("not available") != message.npos) {
    return Error{Errc::invalid_argument, "UCX: " + message, "",
                 "name transports and devices that `ucx_info -d` lists"};
  }
  return context;
}

Result<UcxWorker> UcxWorker::create(UcxContext context) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  ucp_worker_h raw = nullptr;
  auto status = ucp_worker_create(context.get(), &params, &raw);
  if (status != UCS_OK) return ucx_error("ucp_worker_create", status);
  take_ucx_message();  // About names of settings that it does not know.
  Worker worker(raw);
  int event_fd = -1;
  status = ucp_worker_get_efd(raw, &event_fd);
  if (status != UCS_OK) return ucx_error("ucp_worker_get_efd", status);
  return UcxWorker(std::move(context), std::move(worker), event_fd);
}

Result<std::vector<std::byte>> UcxWorker::address() const {
  ucp_address_t* address = nullptr;
  std::size_t length = 0;
  const auto status = ucp_worker_get_address(worker_.get(), &address, &length);
  if (status != UCS_OK) return ucx_error("ucp_worker_get_address", status);
  const auto* bytes = reinterpret_cast<const std::byte*>(address);
  std::vector<std::byte> copy(bytes, bytes + length);
  ucp_worker_release_address(worker_.get(), address);
  return copy;
}

}  // namespace troupe::transport
