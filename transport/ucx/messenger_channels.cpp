// Channels: shared memory between this node and one peer of the same machine.
//
// Each side makes a worker for the other and sends its address over the network, with its first
// message or in answer to the other's. Until that has come, messages take the network; `Inbound`
// puts the two ways in order.

#include <utility>

#include "transport/ucx/connection.hpp"
#include "transport/ucx/host_checks.hpp"

namespace troupe::transport {
namespace {

/// Rounds of progress for the last messages of a peer that has ended.
constexpr int kLastRounds = 1000;

}  // namespace

void Messenger::listen(Port& port) {
  const std::pair<unsigned, ucp_am_recv_callback_t> handlers[] = {
      {kMessageId, on_message}, {kGoodbyeId, on_goodbye}, {kChannelId, on_channel}};
  for (const auto& [id, callback] : handlers) {
    ucp_am_handler_param_t param{};
    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    param.id = id;
    param.flags = UCP_AM_FLAG_WHOLE_MSG;
    param.cb = callback;
    param.arg = &port;
    // Fails for a callback without the flag only.
    ucp_worker_set_am_recv_handler(port.worker->handle(), &param);
  }
}

void Messenger::open_channel(Connection& connection, const ProcessIdentity& identity) {
  if (!shared_memory_ || neighbours(identity, identity_) != Neighbours::yes) return;
  const auto descriptors = open_descriptors();
  auto worker = UcxWorker::create(shared_memory_);
  if (!worker) return;  // Out of shared memory: the network does it alone.
  const auto address = worker.value().address();
  if (!address) return;
  close_new_descriptors_on_exec(descriptors);

  auto channel = std::make_unique<Channel>(std::move(worker).value());
  channel->port = {this, &channel->worker};
  listen(channel->port);
  loop_->add_events(channel->worker.event_fd());
  channels_.push_back(channel.get());
  connection.channel = std::move(channel);
  connection.channel_address = address.value();
}

void Messenger::offer_channel(Connection& connection) {
  if (connection.channel_address.empty()) return;
  const auto bytes =
      std::make_shared<std::vector<std::byte>>(std::exchange(connection.channel_address, {}));
  auto& request = add_request(connection);
  request.data = {bytes->data(), bytes->size(), bytes};
  request.told = true;  // Nobody waits for it.
  start(request, kChannelId, connection.paths.front().endpoint);
}

ucs_status_t Messenger::on_channel(void* argument, const void* raw_header, std::size_t header_bytes,
                                   void* data, std::size_t bytes,
                                   const ucp_am_recv_param_t* param) {
  auto& messenger = *static_cast<Port*>(argument)->messenger;
  const auto header = messenger.read_header(raw_header, header_bytes);
  if (!header) return UCS_OK;
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) return UCS_OK;  // Never that large.
  const auto link = header->link();
  const auto* begin = static_cast<const std::byte*>(data);
  std::vector<std::byte> address(begin, begin + bytes);
  switch (messenger.links_.standing(link)) {
    case Links::Standing::open:
      messenger.events_.push_back([&messenger, link, address = std::move(address)] {
        messenger.take_channel(link, address);
      });
      break;
    case Links::Standing::early:
    case Links::Standing::newer:
      messenger.channel_addresses_.insert_or_assign(link, std::move(address));
      break;
    case Links::Standing::stale: break;
  }
  return UCS_OK;
}

void Messenger::take_channel(Link link, const std::vector<std::byte>& address) {
  if (links_.standing(link) != Links::Standing::open) return;
  auto& connection = *open_.at(*links_.peer_of(link.process));
  if (!connection.channel || connection.paths.size() > 1) return;
  // Where UCX finds the memory out of reach, the network does it alone.
  static_cast<void>(add_path(connection, connection.channel->worker, address));
  offer_channel(connection);
}

void Messenger::drain(Connection& connection) {
  // What a peer sent before it ended may still lie in shared memory, when the network already tells
  // of the end.
  if (!connection.channel) return;
  for (int round = 0; round < kLastRounds && connection.channel->worker.progress(); ++round) {
  }
}

void Messenger::close_channel(Connection& connection) {
  if (!connection.channel) return;
  std::erase(channels_, connection.channel.get());
  loop_->remove_events(connection.channel->worker.event_fd());
  connection.channel.reset();
}

}  // namespace troupe::transport
