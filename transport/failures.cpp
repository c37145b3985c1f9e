#include "transport/failures.hpp"

#include <string>

namespace troupe::transport {
namespace {

std::string name(Peer peer) { return "peer " + std::to_string(peer); }

}  // namespace

Error size_mismatch(Peer peer, const Tag& tag, std::size_t received_bytes,
                    std::size_t expected_bytes) {
  return {Errc::invalid_argument,
          name(peer) + " sent " + std::to_string(received_bytes) + " bytes with the tag [" +
              to_string(tag) + "], but the receive expects " + std::to_string(expected_bytes),
          "", "both sides must derive the size from the same plan"};
}

Error not_connected(Peer peer) {
  return {Errc::not_found, name(peer) + " is not connected", "",
          "connect to it with the address it published"};
}

Error epoch_is_over(const Tag& tag, EpochNumber current) {
  return {Errc::cancelled,
          "the message [" + to_string(tag) + "] belongs to a configuration before epoch " +
              std::to_string(current),
          "", ""};
}

Error too_many_receives(Peer peer, const Tag& tag, std::size_t bytes, std::int64_t posted_bytes,
                        Bytes receives_max) {
  return {Errc::infeasible,
          "receiving [" + to_string(tag) + "] from " + name(peer) + " needs " +
              std::to_string(bytes) + " bytes beside " + std::to_string(posted_bytes) +
              " of posted receives; the bound is " + std::to_string(receives_max.count()),
          "", "post fewer receives ahead, or raise the bound of posted receives"};
}

Error shutting_down() { return {Errc::cancelled, "the transport is being shut down", "", ""}; }

Error receive_cancelled(Peer peer, const Tag& tag) {
  return {Errc::cancelled,
          "the receive of [" + to_string(tag) + "] from " + name(peer) + " was withdrawn", "", ""};
}

Error peer_lost(Peer peer, const std::string& how) {
  return {Errc::transport_failed, name(peer) + " " + how, "", ""};
}

}  // namespace troupe::transport
